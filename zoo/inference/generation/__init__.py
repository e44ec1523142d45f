"""Text generation: greedy search, sampling and beam search.

``config`` holds the settings and imports no torch. ``decoder`` is the interface of models that
generate; ``generate`` runs one, through ``single_sequence`` (greedy search and sampling) or
``beam_search``. ``sampling`` draws tokens, and ``streaming`` decodes them to text incrementally.
"""
