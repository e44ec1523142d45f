"""Labels of an ordered scale, as the medians of their distributions."""

from typing import ClassVar

from zoo.inference.text_results import TextResults
from zoo.inference.text_scores import TextScores
from zoo.tasks.ordinal_regression.results import OrdinalResults


class Ordinal(TextScores):
    """Classification on an ordered scale."""

    results: ClassVar[TextResults | None] = OrdinalResults()
    output_keys: ClassVar[tuple[str, ...]] = OrdinalResults.output_keys
