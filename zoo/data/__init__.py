"""Corpora of token ids on disk, row packing, and random numbers keyed by their purpose."""
