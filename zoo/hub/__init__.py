"""The Hub: model references, registry, lock file and downloads."""

# Downloads use huggingface_hub with its environment variables (endpoint, token, proxies, timeouts)
# and its cache, which is shared with other programs. This package adds limits on responses,
# retries, resumption of downloads across processes, and digests: contents are compared with the
# digest that the Hub publishes before they enter the cache, and with a recorded BLAKE3 digest on
# every later use.
#
# A damaged cached file is downloaded again; offline it is an error (exit code 3).

from zoo.hub.fetch import DownloadResult, fetch

__all__ = ["DownloadResult", "fetch"]
