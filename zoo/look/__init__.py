"""A look inside models: what their layers compute for a text, and what objectives make of text.

``inspection`` runs a model and keeps hidden states, attention and predictions of every layer,
``page`` draws them as one HTML file, ``examples`` has the examples of an objective as text, and
``tokens`` the tokenizer of a model.
"""
