"""What a model is for: texts in, JSON-able results out, over any Session."""
