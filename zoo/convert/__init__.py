"""Conversion of checkpoints to the zoo's layout and back to the Hub's."""

from zoo.convert.conversion import convert
from zoo.convert.report import ConversionReport

__all__ = ["ConversionReport", "convert"]
