"""Adapters: small trained parts of a frozen model, and their files.

A method is a file with a class, whose fields are its settings, and a line in ``METHODS``. The
layers are in ``zoo.nn.adapters``.
"""

from zoo.adapters.base import AdapterMethod
from zoo.adapters.registry import METHODS, adapter_method, parse_adapter

__all__ = ["METHODS", "AdapterMethod", "adapter_method", "parse_adapter"]
