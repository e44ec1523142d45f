"""Layers: embeddings, feed-forward, recurrent, convolution and activation modules."""
