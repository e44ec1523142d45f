"""The configurations of a distillation run: over a corpus, or over labelled data."""

import math
from typing import Any, Literal, Self

import msgspec

from zoo.families.distillation import LayerMap, Replacement, Terms
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import TrainConfig, check_epochs, epoch_steps


class DistillationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Teachers and loss terms of a run; see ``zoo.families.distillation.DistillationRecipe``."""

    # References to the teachers. If there are several, their probabilities are averaged.
    teachers: tuple[str, ...]
    # Reference to the generator that was trained with the teacher, a discriminator; ``None`` if
    # there is none.
    generator: str | None = None
    recipe: str | None = None  # Name or file of the recipe that the defaults come from.
    # Name of the stage of the recipe; ``None`` for a recipe without stages.
    stage: str | None = None
    objective_weight: float = 1.0
    terms: Terms = msgspec.field(default_factory=dict)
    init_layers: LayerMap | None = None
    freeze: tuple[str, ...] = ()
    replacement: Replacement | None = None
    # Dtype of the teachers' weights and computation.
    teacher_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    # Backend of the teachers: ``cpu``, ``cuda``, ``onnx`` (ONNX Runtime), or ``auto`` for the
    # device of the student.
    teacher_backend: Literal["auto", "cpu", "cuda", "onnx"] = "auto"
    # How student and teacher are aligned: by ``tokens``, or by ``text``, which each model tokenizes
    # by itself.
    align: Literal["tokens", "text"] = "tokens"
    # Directory that keeps the teacher's outputs, which are read where its inputs repeat; ``None``
    # to compute them each time.
    cache_teacher: str | None = None
    # Number of logits that the cache keeps of each prediction; all where there are fewer.
    cache_top_k: int = 64

    def __post_init__(self) -> None:
        if not self.teachers:
            raise ValueError("teachers is empty")
        if self.cache_top_k < 1:
            raise ValueError(f"cache_top_k is {self.cache_top_k}, which is not positive")
        if not 0 <= self.objective_weight < math.inf:
            raise ValueError(f"objective_weight is {self.objective_weight}, not 0 or more")
        has_weights = any(term.get("weight", 1.0) for term in self.terms.values())
        if not self.objective_weight and not has_weights:
            raise ValueError("there are no terms, and objective_weight is 0")


class DistillTextConfig(TrainConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of distillation over a corpus, in addition to pretraining's."""

    distillation: DistillationConfig  # Teachers and loss terms.
    # Number of passes over the corpus, which replaces ``max_steps``; evaluations and checkpoints
    # are then at most a pass apart. ``None`` to use ``max_steps``.
    num_train_epochs: float | None = None
    # Fraction of the steps that are warm-up, which replaces ``lr_scheduler.warmup_steps``; ``None``
    # to use that number.
    warmup_ratio: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_no_adapter(self)
        if self.num_train_epochs is not None:
            check_epochs(self.num_train_epochs)
        if self.warmup_ratio is not None and not 0 <= self.warmup_ratio < 1:
            raise ValueError(f"warmup_ratio is {self.warmup_ratio}, which is not in [0, 1)")

    def resolved(self, tokens: int) -> Self:
        """Return the configuration with the numbers of steps that follow from the corpus."""
        changes: dict[str, Any] = {"num_train_epochs": None, "warmup_ratio": None}
        steps = self.max_steps
        if self.num_train_epochs is not None:
            changes |= epoch_steps(self, self.num_train_epochs, tokens)
            steps = changes["max_steps"]
        if self.warmup_ratio is not None:
            warmup_steps = math.ceil(self.warmup_ratio * steps)
            schedule = msgspec.structs.replace(self.lr_scheduler, warmup_steps=warmup_steps)
            changes["lr_scheduler"] = schedule
        return msgspec.structs.replace(self, **changes)


class DistillTaskConfig(FineTuneConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of distillation over labelled data, in addition to fine-tuning's."""

    distillation: DistillationConfig  # Teachers and loss terms.

    def __post_init__(self) -> None:
        super().__post_init__()
        require_no_adapter(self)


def require_no_adapter(config: TrainConfig | FineTuneConfig) -> None:
    """Check that no adapter is trained by distillation; raises ``ValueError``."""
    if config.adapter is not None:
        raise ValueError("a student is trained as a whole: leave adapter out")
