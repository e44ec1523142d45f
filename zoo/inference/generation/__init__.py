"""Writing text with a model: greedy, by beam search, or by sampling.

``settings`` says how, and imports no torch. ``decoder`` is what a model must offer; ``search``
runs one, through ``single`` (one continuation at a time: greedy, sampling) or ``beams``, and
``sampling`` draws tokens. ``text`` turns tokens to text as they come.
"""
