"""Options of tasks that train embeddings."""

from typing import Any

import msgspec

from zoo.objectives.options import Options
from zoo.sentence_models.modules import AnyModule, LexicalPoolingModule
from zoo.sentence_models.pooling import Pooling, PoolingMode, SimilarityFunction


class EmbeddingOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of tasks that train embeddings; ``None`` takes the checkpoint's setting, if any.

    The settings of the loss are options as well; see ``zoo.finetuning.embeddings.losses``.
    """

    # The loss: ``multiple-negatives``, ``cosent``, ``cosine``, ``triplet``, ``softmax``,
    # ``margin-mse``, ``kl-div``, or a plugin's; by default ``cosent`` with a column of labels, and
    # ``multiple-negatives`` without. In a run, an ``EmbeddingLoss`` takes the place of the name.
    loss: Any = None
    # Pooling of the vectors of tokens; by default the mean.
    pooling: PoolingMode | None = None
    normalize: bool | None = None  # Scale embeddings to unit length.
    # Modules after the backbone, such as pooling and Dense, in place of ``pooling``, ``normalize``
    # and ``include_prompt``; see ``zoo.sentence_models.modules``.
    modules: tuple[AnyModule, ...] = ()
    lowercase: bool | None = None  # Lower-case the texts.
    include_prompt: bool | None = None  # Pool the tokens of a prompt, as by default.
    prompts: dict[str, str] | None = None  # Name -> text that precedes texts.
    default_prompt_name: str | None = None  # Prompt of texts for which none is chosen.
    # Similarity of evaluations and of the model; losses compare by cosines or distances.
    similarity_fn_name: SimilarityFunction | None = None
    # Number of leading dimensions in evaluations and of the model; losses read all.
    truncate_dim: int | None = None
    # Numbers of leading dimensions; the loss is computed at each, after scaling to unit
    # length; the losses are added (Kusupati et al. 2022, arXiv:2205.13147).
    matryoshka: tuple[int, ...] | None = None
    # Weights of the losses of ``matryoshka``; by default 1 each.
    matryoshka_weights: tuple[float, ...] | None = None
    # Rows of a column that are embedded at once, and again in the backward pass, so that memory
    # does not grow with the batch (Gao et al. 2021, arXiv:2101.06983); by default all.
    mini_batch_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("truncate_dim", "mini_batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, not positive")
        self._check_matryoshka()
        usual = (self.pooling, self.normalize, self.include_prompt)
        if self.modules and usual != (None, None, None):
            raise ValueError("modules take the place of pooling, normalize and include_prompt")
        for module in self.modules:
            if isinstance(module, LexicalPoolingModule):
                raise ValueError("LexicalPooling belongs to published models, and is not trained")
        if self.default_prompt_name is not None and self.default_prompt_name not in (
            self.prompts or {}
        ):
            raise ValueError(f"default_prompt_name is {self.default_prompt_name}, not a prompt")

    def _check_matryoshka(self) -> None:
        dims = self.matryoshka
        weights = self.matryoshka_weights
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
    settings = pooling or Pooling()
    options: dict[str, Any] = {
        "lowercase": settings.lowercase,
        "prompts": settings.prompts,
        "similarity_fn_name": settings.similarity_fn_name,
        "truncate_dim": settings.truncate_dim,
    }
    if settings.modules:
        options["modules"] = msgspec.to_builtins(settings.modules)
    else:
        options["pooling"] = settings.mode
        options["normalize"] = settings.normalize
        options["include_prompt"] = settings.include_prompt
    if settings.default_prompt_name in settings.prompts:  # Else it is a name without a text.
        options["default_prompt_name"] = settings.default_prompt_name
    return {name: value for name, value in options.items() if value is not None}
