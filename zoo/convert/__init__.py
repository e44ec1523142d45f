"""Converting checkpoints, from any layout that is known to ours or back to the Hub's."""

from zoo.convert.report import Report
from zoo.convert.run import convert

__all__ = ["Report", "convert"]
