"""A look inside models: what their layers compute for a text, and what objectives make of text."""
