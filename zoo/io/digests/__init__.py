"""Digests of files and manifests, and the cache of files that were verified."""
