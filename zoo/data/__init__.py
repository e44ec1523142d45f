"""Corpora of token ids on disk, row packing, and random numbers keyed by their purpose.

``corpus_cache.cached_corpus`` and ``build.build`` make a corpus, and ``corpus.Corpus`` reads it.
"""
