"""Choice of a label by the likelihood of its word."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.inference.processing.numbers import softmax
from zoo.tasks.prompt.scoring import WordScorer
from zoo.tasks.prompt.template import Prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LabelChooser:
    """Chooses a label by the likelihood of its word; ``words`` has label -> word."""

    def __init__(
        self, scorer: WordScorer, words: Mapping[str, str], *, normalized: bool = False
    ) -> None:
        self.scorer = scorer
        self.words = words
        self.normalized = normalized
        # probabilities that those of the labels are divided by, (labels,)
        self.prior: NDArray[np.float64] | None = None

    def scores(
        self,
        prompts: Sequence[Sequence[Prompt]],
        *,
        on_batch: Callable[[float], None] | None = None,
    ) -> "NDArray[np.float64]":
        """Return the scores of the words in prompts, (texts, labels); see ``WordScorer.score``."""
        flat = [prompt for row in prompts for prompt in row]
        log_probs, tokens = self.scorer.score(flat, on_batch=on_batch)
        values = log_probs / tokens if self.normalized else log_probs
        return values.reshape(len(prompts), -1)

    def calibrate(self, prompts: Sequence[Sequence[Prompt]]) -> None:
        """Divide probabilities by the mean of those for texts without content.

        Contextual calibration, Zhao et al. 2021, arXiv:2102.09690, section 5, with the
        probabilities scaled to a sum of 1 afterwards.
        """
        self.prior = softmax(self.scores(prompts)).mean(0)

    def probabilities(self, scores: "NDArray[np.float64]") -> "NDArray[np.float64]":
        """Return the probabilities of the labels for their words' scores, (texts, labels)."""
        probabilities = softmax(scores)
        if self.prior is None:
            return probabilities
        divided: NDArray[np.float64] = probabilities / self.prior
        divided /= divided.sum(-1, keepdims=True)
        return divided

    def results(
        self,
        prompts: Sequence[Sequence[Prompt]],
        *,
        on_batch: Callable[[float], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the label of each text, the first of equal ones; see ``WordScorer.score``."""
        scores = self.scores(prompts, on_batch=on_batch)
        labels = list(self.words)
        results = []
        for row, probabilities in zip(scores, self.probabilities(scores), strict=True):
            best = int(probabilities.argmax())
            results.append(
                {
                    "label": labels[best],
                    "score": float(probabilities[best]),
                    "scores": dict(zip(labels, probabilities.tolist(), strict=True)),
                    "log_probs": dict(zip(labels, row.tolist(), strict=True)),
                }
            )
        return results
