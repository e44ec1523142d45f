"""Masks, and attention in training on CPUs; ``zoo.nn.transformer`` has the layers."""
