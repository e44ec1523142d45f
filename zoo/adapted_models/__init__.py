"""Models with adapters: small trained parts of a frozen model, and their files.

The room has what applies any adapter: the interface and the names of methods, the linear maps that
they may change, and a model with adapters as one checkpoint. The methods are in ``zoo.adapters``,
and the layers in ``zoo.nn.adapters``.
"""
