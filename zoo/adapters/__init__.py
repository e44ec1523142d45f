"""Adapters: small trained parts of a frozen model, and their files.

A method is a file with a class, whose fields are its settings, and a line in ``ADAPTERS``; a
plugin's is an entry point of ``zoo.api1.adapters``. The layers are in ``zoo.nn.adapters``.
"""

from zoo.adapters.base import AdapterMethod
from zoo.adapters.registry import ADAPTERS, parse_adapter

__all__ = ["ADAPTERS", "AdapterMethod", "parse_adapter"]
