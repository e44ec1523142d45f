"""Options of sentence embeddings, and the columns that their losses need."""

from typing import Any, Literal

import msgspec

from zoo.errors import UsageError
from zoo.objectives.options import Options
from zoo.tokenizers.pooling import Pooling, PoolingMode, SimilarityFunction
from zoo.tokenizers.sentence_modules import AnyModule
from zoo.training.config.finetune import TableConfig

Loss = Literal[
    "multiple-negatives", "cosent", "cosine", "triplet", "softmax", "margin-mse", "kl-div"
]
MARGIN_MSE = "margin-mse"
TAUGHT = (MARGIN_MSE, "kl-div")  # by the scores of a teacher
SCORED, UNSCORED = ("cosent", "cosine"), ("multiple-negatives", "triplet")


class EmbeddingOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``SentenceEmbedding``; ``None`` takes the checkpoint's setting, if it has one."""

    # by default ``cosent`` with a column of labels, and ``multiple-negatives`` without
    loss: Loss | None = None
    scale: float = 20.0  # factor of cosine similarities in ``multiple-negatives`` and ``cosent``
    margin: float = 5.0  # margin of ``triplet``
    temperature: float = 1.0  # of the probabilities in ``kl-div``
    # lowest and highest score of the data, which ``cosine`` maps to 0 and 1
    score_range: tuple[float, float] | None = None
    pooling: PoolingMode | None = None  # of the vectors of tokens; by default the mean
    normalize: bool | None = None  # scale embeddings to unit length
    # modules after the backbone, such as pooling and Dense, in place of ``pooling``, ``normalize``
    # and ``include_prompt``; see ``zoo.tokenizers.sentence_modules``
    modules: tuple[AnyModule, ...] = ()
    lowercase: bool | None = None  # lower-case the texts
    include_prompt: bool | None = None  # pool the tokens of a prompt, as by default
    prompts: dict[str, str] | None = None  # name -> text that precedes texts
    default_prompt_name: str | None = None  # prompt of texts for which none is chosen
    # in evaluations and of the model; losses compare by cosines or distances
    similarity_fn_name: SimilarityFunction | None = None
    # leading dimensions in evaluations and of the model; losses read all
    truncate_dim: int | None = None
    # numbers of leading dimensions; the loss is computed at each, after scaling to unit
    # length; the losses are added (Kusupati et al. 2022, arXiv:2205.13147)
    matryoshka: tuple[int, ...] | None = None
    matryoshka_weights: tuple[float, ...] | None = None  # of these losses; by default 1 each
    # rows of a column that are embedded at once, and again in the backward pass, so that memory
    # does not grow with the batch (Gao et al. 2021, arXiv:2101.06983); by default all
    mini_batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.margin < 0:
            raise ValueError(f"scale is {self.scale} and margin {self.margin}, not positive")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}, not positive")
        for name in ("truncate_dim", "mini_batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, not positive")
        self._check_matryoshka()
        usual = (self.pooling, self.normalize, self.include_prompt)
        if self.modules and usual != (None, None, None):
            raise ValueError("modules take the place of pooling, normalize and include_prompt")
        if self.default_prompt_name is not None and self.default_prompt_name not in (
            self.prompts or {}
        ):
            raise ValueError(f"default_prompt_name is {self.default_prompt_name}, not a prompt")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError(f"score_range is {self.score_range}, not the lowest score first")

    def _check_matryoshka(self) -> None:
        dims, weights = self.matryoshka, self.matryoshka_weights
        if dims is not None and (not dims or min(dims) < 1 or len(set(dims)) < len(dims)):
            raise ValueError(f"matryoshka is {list(dims)}, not different positive numbers")
        if weights is None:
            return
        if dims is None or len(weights) != len(dims):
            raise ValueError(f"matryoshka_weights has {len(weights)} numbers, not one a dimension")
        if not (min(weights) >= 0 and sum(weights) > 0):
            raise ValueError(f"matryoshka_weights is {list(weights)}, not positive")

    @property
    def cuts(self) -> "list[tuple[int | None, float]]":
        """Leading dimensions at which a loss is computed, ``None`` for all, and its weight."""
        if self.matryoshka is None:
            return [(None, 1.0)]
        weights = self.matryoshka_weights or (1.0,) * len(self.matryoshka)
        return sorted(zip(self.matryoshka, weights, strict=True), reverse=True)

    def settings(self, max_tokens: int | None) -> Pooling:
        """Return the settings of the sentence encoder that is trained."""
        return Pooling(
            mode=self.pooling or "mean",
            normalize=bool(self.normalize),
            max_tokens=max_tokens,
            lowercase=bool(self.lowercase),
            include_prompt=self.include_prompt is not False,
            prompts=dict(self.prompts or {}),
            default_prompt_name=self.default_prompt_name,
            similarity_fn_name=self.similarity_fn_name or "cosine",
            truncate_dim=self.truncate_dim,
            modules=self.modules,
        )


def stored_options(pooling: Pooling | None) -> dict[str, Any]:
    """Return the options with which a sentence encoder is trained further."""
    known = pooling or Pooling()
    usual = {
        "pooling": known.mode,
        "normalize": known.normalize,
        "include_prompt": known.include_prompt,
    }
    options = {
        **({"modules": msgspec.to_builtins(known.modules)} if known.modules else usual),
        "lowercase": known.lowercase,
        "prompts": known.prompts,
        "default_prompt_name": known.default_prompt_name,
        "similarity_fn_name": known.similarity_fn_name,
        "truncate_dim": known.truncate_dim,
    }
    if known.default_prompt_name not in known.prompts:  # a name that has no text
        del options["default_prompt_name"]
    return {name: value for name, value in options.items() if value is not None}


def check_columns(loss: Loss, data: TableConfig) -> None:
    """Check that the data has the columns of a loss."""
    wrong = {
        "needs scores or classes: name their column with --label": (
            loss in (*SCORED, "softmax") and data.label is None
        ),
        "needs the scores of a teacher: name their column with --label": (
            loss in TAUGHT and data.label is None
        ),
        "needs negatives: name their columns with --negative": (
            loss in TAUGHT and not data.negatives
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
            loss in (*SCORED, *TAUGHT, "softmax") and data.eval_score is not None
        ),
        "is evaluated on scores of other files: name them with --eval": (
            data.eval_score is not None and not data.eval
        ),
    }
    for remedy in (text for text, applies in wrong.items() if applies):
        raise UsageError(f"the loss {loss} {remedy}")
