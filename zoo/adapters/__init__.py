"""The methods of adapters, adapters of other libraries, merging and extraction.

A method is a file with a class, whose fields are its settings, and a line in ``ADAPTERS``; a
plugin's is an entry point of ``zoo.api1.adapters``. The layers are in ``zoo.nn.adapters``.
"""

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.registry import ADAPTERS, parse_adapter

__all__ = ["ADAPTERS", "AdapterMethod", "parse_adapter"]
