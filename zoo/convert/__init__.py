"""Converting checkpoints, from any layout that is known to ours or back to the Hub's."""

from zoo.convert.conversion import convert
from zoo.convert.report import ConversionReport

__all__ = ["ConversionReport", "convert"]
