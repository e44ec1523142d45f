"""Detection of tokens that were replaced by others, drawn by their frequency."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.evaluation.base import LikelihoodEvaluation, Prediction, RestartableIterable, Result
from zoo.inference.scoring import DiscriminatorScorer, ScoredRow, Scorer
from zoo.metrics.classification import accuracy
from zoo.metrics.ranks import roc_auc
from zoo.overrides import override
from zoo.tasks.likelihood.perplexity import TextStream, read_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ReplacedTokens(LikelihoodEvaluation):
    """Area under the ROC curve of a replaced-token detector, over rows of documents.

    Documents are cut into rows of ``max_seq_len`` tokens with special ones; a shorter remainder is
    left out. ``accuracy`` has the threshold 1/2.
    """

    name: ClassVar[str] = "replaced-tokens"
    scorers: ClassVar[tuple[type[Scorer], ...]] = (DiscriminatorScorer,)

    def __init__(
        self,
        *args: Any,
        max_seq_len: int = 64,
        replace_prob: float = 0.1,  # fraction of the tokens of a row
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        limit = self.scorer.max_tokens
        if limit is not None and max_seq_len > limit:
            raise UsageError(
                f"rows of {max_seq_len} tokens are too long: the model takes {limit}",
                f"--max-seq-len {limit}",
            )
        self.max_seq_len = max_seq_len
        self.replace_prob = replace_prob
        self.seed = seed

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        rows = RestartableIterable(lambda: self._rows(files), self.limit)
        replaced = list[Any]()
        scores = list[Any]()
        predicted = list[Any]()
        count = 0
        scored_rows = self.scorer.run(self._replaced(rows, files[0]))
        for row, values, original in self.shown(scored_rows, None, "rows"):
            replaced.append(row.ids[row.positions] != row.labels)
            scores.append(values)
            predicted.append(~original)
            count += 1
            if self._on_prediction is not None:
                self._on_prediction(self._prediction(row, values, ~original, count))
        actual = np.concatenate(replaced)
        if actual.all():
            raise UsageError(
                f"all of {len(actual)} tokens are replaced", "give a larger --max-seq-len"
            )
        return Result(
            {
                "area_under_curve": roc_auc(-np.concatenate(scores), actual),
                "accuracy": accuracy(np.concatenate(predicted), actual),
                "replaced": float(actual.mean()),
                "tokens": len(actual),
                "rows": count,
            }
        )

    def _prediction(
        self,
        row: ScoredRow,
        values: "NDArray[np.floating[Any]]",
        predicted: "NDArray[np.bool_]",
        number: int,
    ) -> Prediction:
        """Return the tokens of a row, and which are replaced and are taken for replaced."""
        import numpy as np

        tokens = [self.scorer.tokenizer.token(token) for token in row.ids[row.positions].tolist()]
        replaced = row.ids[row.positions] != row.labels
        return {
            "location": f"row {number}",
            "text": self.scorer.tokenizer.decode(row.ids.tolist()),
            "tokens": tokens,
            "label": replaced.tolist(),
            "prediction": predicted.tolist(),
            "probability": (-np.expm1(values)).tolist(),
            "correct": bool((replaced == predicted).all()),
            "wrong": int((replaced != predicted).sum()),
        }

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        """Return the number of tokens that are taken for what they are not."""
        return row["wrong"] or None

    def _replaced(self, rows: Iterable[ScoredRow], file: Path) -> Iterator[ScoredRow]:
        """Yield the rows with some tokens replaced; their labels are the original tokens."""
        # The rows are read twice: their tokens are counted first.
        import numpy as np

        frequencies = Counter[int]()
        for row in rows:
            frequencies.update(row.labels.tolist())
        if not frequencies:
            raise UsageError(
                f"no document of {file} fills a row of {self.max_seq_len} tokens",
                "give more text, or a smaller --max-seq-len",
            )
        if len(frequencies) < 2:
            raise UsageError(f"{file} only has one token", "give more text")
        tokens, counts = np.array(sorted(frequencies.items()), np.int64).T
        cumulative = counts.cumsum() / counts.sum()
        for number, row in enumerate(rows):
            rng = generator(self.seed, "replaced", number)
            replace_tokens(row, tokens, cumulative, self.replace_prob, rng)
            yield row

    def _rows(self, files: Sequence[Path]) -> Iterator[ScoredRow]:
        """Yield the rows, each with the special tokens of a text of its own."""
        import numpy as np

        for document in TextStream(read_texts(files, None)).encode(self.scorer.tokenizer, None):
            ids = np.array(document.ids, np.int64)
            special = np.array(document.special, bool)
            inner = np.flatnonzero(~special)
            if not len(inner):
                continue
            leading_ids = ids[: inner[0]]
            trailing_ids = ids[inner[-1] + 1 :]
            width = self.max_seq_len - len(leading_ids) - len(trailing_ids)
            positions = np.arange(width) + len(leading_ids)
            for start in range(inner[0], inner[-1] + 2 - width, max(width, 1)):
                row = np.concatenate([leading_ids, ids[start : start + width], trailing_ids])
                yield ScoredRow(row, (), positions, row[positions].copy(), 0)


def replace_tokens(
    row: ScoredRow,
    tokens: "NDArray[np.int64]",
    cumulative: "NDArray[np.float64]",
    fraction: float,
    rng: "np.random.Generator",
) -> "NDArray[np.bool_]":
    """Replace a fraction of a row's tokens in place; return which positions, (positions,).

    A discriminator's own generator decides how hard its replacements are. Here replacements only
    depend on the text and a seed, so that discriminators can be compared. Since tokens are drawn
    by their frequency in the text, knowing frequencies gives an area of 0.5.

    Args:
        row: the row.
        tokens: two tokens or more, (n,), from which replacements are drawn.
        cumulative: their cumulative probabilities, (n,).
        fraction: share of the row's tokens; at least one is replaced, by a different token.
        rng: draws the positions and the tokens.
    """
    import numpy as np

    replaced: NDArray[np.bool_] = np.zeros(len(row.positions), bool)
    count = max(1, round(fraction * len(replaced)))
    for k in rng.choice(len(replaced), count, replace=False):
        position = row.positions[k]
        token = row.ids[position]
        while token == row.ids[position]:
            token = tokens[np.searchsorted(cumulative, rng.random(), side="right")]
        row.ids[position] = token
        replaced[k] = True
    return replaced
