"""Files from a Hub: resolved to a commit, downloaded, checked, and checked again when used.

Downloads are huggingface_hub's: endpoint, token, proxies, timeouts and the place of its cache are
what its environment variables say, and files land in its cache, shared with every other program
that uses it. Added to it are limits on what a server sends, tries after failures that may pass,
downloads that go on where they stopped, also in another process, and digests: contents are checked
against the digest that the Hub publishes before they enter the cache, and every later use checks
them against the BLAKE3 digest that was recorded then.

A cached file that fails its check is downloaded again; offline it is an error (exit code 3).
"""

from zoo.hub.fetch import DownloadResult, fetch

__all__ = ["DownloadResult", "fetch"]
