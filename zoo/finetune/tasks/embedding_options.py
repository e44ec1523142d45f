"""Options of sentence embeddings, and the columns that their losses need."""

from typing import Literal

from zoo.errors import UsageError
from zoo.objectives.options import Options
from zoo.training.config.finetune import TableConfig

Loss = Literal["multiple-negatives", "cosent", "cosine", "triplet", "softmax"]
Mode = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
SCORED, UNSCORED = ("cosent", "cosine"), ("multiple-negatives", "triplet")


class EmbeddingOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``SentenceEmbedding``.

    Attributes:
        loss: the loss, see ``SentenceEmbedding``; by default ``cosent`` with a column of labels,
            and ``multiple-negatives`` without.
        scale: factor of cosine similarities in ``multiple-negatives`` and ``cosent``.
        margin: margin of ``triplet``.
        score_range: lowest and highest score of the data, which ``cosine`` maps to 0 and 1.
        pooling: how the vectors of tokens become one; ``None`` for that of the checkpoint, or else
            the mean.
        normalize: scale embeddings to unit length; ``None`` for that of the checkpoint, or else
            not.
        lowercase: lower-case the texts; ``None`` for that of the checkpoint, or else not.
    """

    loss: Loss | None = None
    scale: float = 20.0
    margin: float = 5.0
    score_range: tuple[float, float] | None = None
    pooling: Mode | None = None
    normalize: bool | None = None
    lowercase: bool | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a value is out of its range.
        """
        if self.scale <= 0 or self.margin < 0:
            raise ValueError(f"scale is {self.scale} and margin {self.margin}, not positive")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError(f"score_range is {self.score_range}, not the lowest score first")


def check_columns(loss: Loss, data: TableConfig) -> None:
    """Check that the data has the columns of a loss.

    Raises:
        UsageError: it has not.
    """
    wrong = {
        "needs scores or classes: name their column with --label": (
            loss in (*SCORED, "softmax") and data.label is None
        ),
        "takes no labels: leave out --label": (loss in UNSCORED and data.label is not None),
        "has no classes: leave out data.labels": loss != "softmax" and data.labels is not None,
        "takes no negatives: leave out --negative": (
            loss in (*SCORED, "softmax") and bool(data.negatives)
        ),
        "needs one negative: name its column with --negative": (
            loss == "triplet" and len(data.negatives) != 1
        ),
        "is evaluated on its own columns: leave out data.eval_score": (
            loss in (*SCORED, "softmax") and data.eval_score is not None
        ),
        "is evaluated on scores of other files: name them with --eval": (
            data.eval_score is not None and not data.eval
        ),
    }
    for remedy in (text for text, applies in wrong.items() if applies):
        raise UsageError(f"the loss {loss} {remedy}")
