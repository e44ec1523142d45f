"""Tasks of fine-tuning, one module each."""
