"""A new vocabulary for a model: ``zoo retokenize``."""
