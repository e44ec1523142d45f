"""Scores of pairs of a query and a text, as a cross-encoder gives them."""

from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.text_scores import TextScores
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PairScores(TextScores):
    """The logit of each pair, before any activation, which would make high scores equal.

    Of a classifier of two labels, it is the log-odds of the second one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        count = len(self.checkpoint.config.labels)
        if count > 2:
            raise UsageError(
                f"{self.checkpoint.name} has {count} labels, where a text has one score",
                "give a model with one output, or with two labels",
            )

    output_keys: ClassVar[tuple[str, ...]] = ("score",)

    @override
    def result(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        score = float(logits[0])
        if len(logits) > 1:
            score = float(logits[1]) - score
        return {"score": score}
