"""Evaluation of causal language models on completions of prompts."""

from collections.abc import Iterator, Sequence
from math import exp, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.completions import read_completions
from zoo.evaluation.base import LikelihoodEvaluation, Result
from zoo.evaluation.metrics import bootstrap_samples
from zoo.inference.completions import CompletionTokenizer, CompletionTokens
from zoo.inference.scoring import CausalScorer, ScoredRow, Scorer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Completions(LikelihoodEvaluation):
    """Loss and perplexity of completions, given their prompts; see ``Perplexity`` for documents.

    The end-of-text token after a completion is predicted, too. Intervals are over samples.

    Args:
        *args: see ``Evaluation``.
        text: column of the prompt.
        label: column of the completion.
        seed: seed of the intervals.
        **options: see ``Evaluation``.
    """

    name: ClassVar[str] = "causal-lm"
    scorers: ClassVar[tuple[type[Scorer], ...]] = (CausalScorer,)

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.text, self.label, self.seed = text, label, seed

    def evaluate(self, files: Sequence[Path]) -> Result:
        """See ``Evaluation``."""
        import numpy as np

        samples = read_completions(files, self.text, self.label)[: self.limit]
        texts = CompletionTokenizer(self.scorer.tokenizer, self.scorer.max_tokens or 1 << 30)
        tokens = texts.completions([(s.prompt or "", s.text) for s in samples])
        scores = self.scorer.score_rows(_rows(tokens), len(samples))
        table = np.array([(-score.log_prob, score.correct, score.tokens) for score in scores])

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            total, correct, count = table[rows].sum(0).tolist()
            loss = total / count
            perplexity = exp(loss) if loss < 700 else inf
            return {"loss": loss, "perplexity": perplexity, "accuracy": correct / count}

        values = metrics(np.arange(len(samples)))
        cut = sum(text.truncated > 0 for text in tokens)
        return Result(
            {
                **values,
                "tokens": int(table[:, 2].sum()),
                "samples": len(samples),
                **({"truncated": cut} if cut else {}),
            },
            {"intervals": bootstrap_samples(metrics, len(samples), self.seed)},
        )


def _rows(tokens: Sequence[CompletionTokens]) -> Iterator[ScoredRow]:
    import numpy as np

    for number, text in enumerate(tokens):
        ids = np.array(text.ids, np.int64)
        positions = np.arange(text.first - 1, len(ids) - 1)
        yield ScoredRow(ids[:-1], (), positions, ids[text.first :], number)
