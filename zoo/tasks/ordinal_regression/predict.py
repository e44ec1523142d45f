"""Labels of an ordered scale, as the medians of their distributions."""

from typing import ClassVar

from zoo.inference.text_results import TextResults
from zoo.inference.text_scores import TextScores
from zoo.tasks.ordinal_regression.results import ORDINAL_RESULTS, MedianClass


class Ordinal(TextScores):
    """Classification on an ordered scale."""

    results: ClassVar[TextResults | None] = ORDINAL_RESULTS
    output_keys: ClassVar[tuple[str, ...]] = MedianClass.output_keys
