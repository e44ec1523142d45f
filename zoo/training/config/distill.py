"""The configurations of a distillation run: over a corpus, or over labelled data."""

import math
from typing import Any, Literal, Self

import msgspec

from zoo.families.distillation import LayerMap, Replacement, Term
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import TrainConfig


class DistillationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Teachers and loss terms of a run; see ``zoo.families.distillation.DistillationRecipe``.

    Attributes:
        teachers: references to the teachers; of several, the probabilities are averaged.
        generator: reference to the generator that was trained beside the teacher, a discriminator;
            ``None`` for none.
        recipe: name of the recipe, or file, that the defaults are from.
        stage: name of the stage of the recipe; ``None`` for a recipe without stages.
        objective_weight, terms, init_layers, freeze, replacement: see ``DistillationRecipe``.
        teacher_dtype: dtype of the teachers' weights and computation.
        teacher_backend: where teachers run: ``cpu``, ``cuda``, ``onnx`` (ONNX Runtime), or ``auto``
            for the device of the student.
        align: what of student and teacher corresponds: ``tokens``, or ``text``, of which each model
            reads tokens of its own.
        cache_teacher: directory in which the teacher's outputs are kept, to be read where its
            inputs repeat; ``None`` for none.
        cache_top_k: number of logits that are kept per prediction; all where there are fewer.
    """

    teachers: tuple[str, ...]
    generator: str | None = None
    recipe: str | None = None
    stage: str | None = None
    objective_weight: float = 1.0
    terms: dict[str, Term] = msgspec.field(default_factory=dict)
    init_layers: LayerMap | None = None
    freeze: tuple[str, ...] = ()
    replacement: Replacement | None = None
    teacher_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    teacher_backend: Literal["auto", "cpu", "cuda", "onnx"] = "auto"
    align: Literal["tokens", "text"] = "tokens"
    cache_teacher: str | None = None
    cache_top_k: int = 64

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: there is no teacher, a number is out of its range, or nothing is learned.
        """
        if not self.teachers:
            raise ValueError("teachers is empty")
        if self.cache_top_k < 1:
            raise ValueError(f"cache_top_k is {self.cache_top_k}, which is not positive")
        if not 0 <= self.objective_weight < math.inf:
            raise ValueError(f"objective_weight is {self.objective_weight}, not 0 or more")
        if not self.objective_weight and not any(term.weight for term in self.terms.values()):
            raise ValueError("there are no terms, and objective_weight is 0")


class DistillTextConfig(TrainConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of distillation over a corpus: that of pretraining, and:

    Attributes:
        distillation: teachers and loss terms.
        num_train_epochs: number of passes over the corpus, which replaces ``max_steps``;
            evaluations and checkpoints are then at most a pass apart. ``None`` for ``max_steps``.
        warmup_ratio: fraction of the steps that are warm-up, which replaces
            ``lr_scheduler.warmup_steps``; ``None`` for these.
    """

    distillation: DistillationConfig
    num_train_epochs: float | None = None
    warmup_ratio: float | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a number is out of its range.
        """
        super().__post_init__()
        epochs, warmup = self.num_train_epochs, self.warmup_ratio
        if epochs is not None and not 0 < epochs < math.inf:
            raise ValueError(f"num_train_epochs is {epochs}, not positive")
        if warmup is not None and not 0 <= warmup < 1:
            raise ValueError(f"warmup_ratio is {warmup}, which is not in [0, 1)")

    def resolved(self, tokens: int) -> Self:
        """Return the configuration with the numbers of steps that follow from the corpus.

        Args:
            tokens: number of tokens of the training data.
        """
        changes: dict[str, Any] = {"num_train_epochs": None, "warmup_ratio": None}
        steps = self.max_steps
        if self.num_train_epochs is not None:
            steps_per_epoch = tokens / (self.global_batch_size * self.seq_len)
            steps = math.ceil(self.num_train_epochs * steps_per_epoch)
            for name in ("eval_steps", "save_steps"):
                changes[name] = min(getattr(self, name), math.ceil(steps_per_epoch))
        if self.warmup_ratio is not None:
            warmup = math.ceil(self.warmup_ratio * steps)
            changes["lr_scheduler"] = msgspec.structs.replace(
                self.lr_scheduler, warmup_steps=warmup
            )
        return msgspec.structs.replace(self, max_steps=steps, **changes)


class DistillTaskConfig(FineTuneConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of distillation over labelled data: that of fine-tuning, and:

    Attributes:
        distillation: teachers and loss terms.
    """

    distillation: DistillationConfig
