"""Conversion of checkpoints to the zoo's layout and back to the Hub's."""

from zoo.conversion.convert import convert
from zoo.conversion.report import ConversionReport

__all__ = ["ConversionReport", "convert"]
