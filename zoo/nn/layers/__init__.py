"""Layers beside those of a Transformer: recurrent, highway, convolution, initialization."""
