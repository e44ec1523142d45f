"""From texts to batches: corpora on disk, rows packed from them, and the order they come in.

``cache.cached_corpus`` and ``build.build`` make a corpus, ``corpus.Corpus`` reads it.
"""
