"""Files from a Hub: resolved to a commit, downloaded, checked, and checked again when used.

The Hub's own client (huggingface_hub) speaks to the Hub: endpoint, token, proxies, timeouts and
the place of its cache are what its environment variables say. Files land in its cache, in its
layout, so that they are shared with every other program that uses it. What the client does not
do is done here: a download that was interrupted goes on where it stopped, also in another
process; contents are checked against the digest that the Hub publishes before they enter the
cache; and every later use checks them against the BLAKE3 digest recorded then.

A cached file that fails its check is removed from the cache and reported (exit code 3); the next
``zoo fetch`` downloads it again.
"""

from zoo.hub.fetch import Fetched, fetch

__all__ = ["Fetched", "fetch"]
