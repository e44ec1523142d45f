"""Layers other than a Transformer's: recurrent, highway, convolution, initialization."""
