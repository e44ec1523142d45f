"""More positions for a model, so that it reads longer texts: ``zoo convert --max-seq-len``."""
