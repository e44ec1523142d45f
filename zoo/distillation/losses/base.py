"""Base classes of losses: for logits, layers, attention and embeddings.

Importing it imports no torch, so that a recipe is checked at once. A loss imports torch where it
computes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import msgspec

from zoo.distillation.layer_maps import resolve_layers
from zoo.distillation.outputs import (
    HeadEmbeddings,
    ModelOutput,
    TeacherLogits,
    TeacherOutput,
    TextEmbeddings,
    attention_pairs,
    first_tokens,
    real_tokens,
)
from zoo.errors import UsageError, did_you_mean
from zoo.families.distillation import LayerMap
from zoo.families.tasks import LabelType
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.distillation.logits import Target
    from zoo.nn.row_chunks import Logits
    from zoo.objectives.base import Batch, Objective, TrainingObjective

Side = Literal["student", "teacher"]
Layers = dict[str, set[int]]  # Argument of ``capture`` -> indices of layers.
Reduction = Literal["rows", "elements"]
Projection = Literal["auto", "always"]
Positions = Literal["all", "predicted"]


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model that losses depend on.

    Attributes:
        layers: number of layers; 0 for a model without layers.
        hidden_size: width of the hidden states.
        heads: number of attention heads; 0 for a model without attention.
        classes: number of classes of labelled data; 0 for a language model.
        causal: whether tokens only attend to earlier ones.
    """

    layers: int
    hidden_size: int
    heads: int
    classes: int
    causal: bool


class LossSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the settings of a loss.

    A subclass has a field with a default for each setting, and a comment that says what it means.
    ``__post_init__`` may raise ``ValueError``. Recipes give the fields next to ``kind`` and
    ``weight`` of a term.
    """


@dataclass(frozen=True)
class Term:
    """A term of a recipe: a loss with its weight and settings.

    Attributes:
        name: name in logs and in ``loss_weights``.
        loss: class of the loss.
        weight: weight in the total loss.
        settings: settings of the loss.
    """

    name: str
    loss: "type[DistillationLoss]"
    weight: float
    settings: LossSettings


class Substitute(NamedTuple):
    """The loss that takes the place of another one.

    Attributes:
        loss_name: name of the loss.
        term_name: name of its term, if the term was called like the loss that is replaced.
    """

    loss_name: str
    term_name: str


@dataclass(kw_only=True, eq=False)
class DistillationLoss(ABC):
    """A loss that compares a student with its teachers.

    A subclass is one loss. It declares its name and settings and what it needs, and computes a sum
    over a batch and the count that the sum is divided by. ``LogitsLoss``, ``HiddenLoss``,
    ``AttentionScoresLoss`` and ``TextEmbeddingLoss`` are base classes with most of that.

    A subclass that annotates ``settings`` with its own type has typed settings.

    Attributes:
        name: name of the loss, which recipes give as ``kind`` of a term.
        summary: what is compared, in a few words, for tables of the documentation.
        settings_type: type of the settings.
        needs_head: whether the outputs of the head are compared.
        label_types: types of labels that the loss can read, as ``LogitRows.labels`` or by
            ``ModelOutput.labels`` of the student; empty if it reads none.
        averages_teachers: whether there may be several teachers.
        term_name: name of the term, in logs and in ``loss_weights``.
        weight: weight in the total loss.
        settings: the settings of the term.
        objective: the student's objective or task.
        student: sizes of the student.
        teachers: sizes of the teachers.

    Raises:
        UsageError: the loss does not suit the objective or the models.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    settings_type: ClassVar[type[LossSettings]] = LossSettings
    needs_head: ClassVar[bool] = False
    label_types: ClassVar[tuple[LabelType, ...]] = ()
    averages_teachers: ClassVar[bool] = False

    term_name: str
    weight: float
    settings: LossSettings
    objective: "TrainingObjective"
    student: ModelShape
    teachers: Sequence[ModelShape]

    def __post_init__(self) -> None:  # noqa: B027 (optional)
        """Check that the loss suits the objective and the models; by default nothing.

        Raises:
            UsageError: it does not.
        """

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """Return the names of the settings."""
        return cls.settings_type.__struct_fields__

    @classmethod
    def build(
        cls,
        term: Term,
        objective: "TrainingObjective",
        student: ModelShape,
        teachers: Sequence[ModelShape],
    ) -> list[Self]:
        """Return the losses of a recipe's term, by default one; may raise ``UsageError``."""
        loss = cls(
            term_name=term.name,
            weight=term.weight,
            settings=term.settings,
            objective=objective,
            student=student,
            teachers=teachers,
        )
        return [loss]

    @classmethod
    def settings_for_task(cls, settings: LossSettings) -> LossSettings:
        """Return the settings of a recipe for text as they are on labelled data."""
        return settings

    @classmethod
    def settings_for_widths(cls, settings: LossSettings, widths: Sequence[int]) -> LossSettings:
        """Return the settings of a published recipe as they suit models of other widths."""
        return settings

    @classmethod
    def substitute(cls, problem: str | None) -> Substitute | None:
        """Return the loss that takes the place of this one, if it cannot compare a task's outputs.

        Args:
            problem: problem type of the task, such as ``regression``; ``None`` if it has none.
        """
        return None

    @property
    def teacher_output(self) -> TeacherOutput | None:
        """The output of a teacher that the loss compares, which a cache keeps.

        ``None`` if it compares layers, whose tensors are too large.
        """
        return None

    def captured(self, side: Side) -> Layers:
        """Return the layers that the loss reads, by argument of ``zoo.nn.capture.capture``."""
        return {}

    def new_projection(self) -> "nn.Module | None":
        """Return an untrained linear map from the student's width to the teacher's, if needed."""
        return None

    @abstractmethod
    def count(self, batch: "Batch") -> int:
        """Return the number by which the sum over a batch is divided."""

    @abstractmethod
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: "nn.Module | None"
    ) -> "Tensor":
        """Return the sum over a batch, a scalar with a gradient.

        Args:
            student: outputs of the student.
            teachers: outputs of the teachers, without gradients.
            projection: the module that ``new_projection`` returned, trained so far.
        """

    def row_sums(
        self, student: ModelOutput, teachers: Sequence[ModelOutput]
    ) -> "tuple[Tensor, Tensor] | None":
        """Return sum and count of each row of a batch, for the log of a run with several sources.

        Only their sums over the rows of a source are used. ``None``, as by default, for losses
        without a training loss of each source. The batch of the student has ``source_ids``.
        """
        return None

    def metrics(self, teachers: Sequence[ModelOutput]) -> "dict[str, tuple[Tensor, Tensor]]":
        """Return additional metrics of a batch as (sum, count); by default none."""
        return {}

    def linear_map(self, projection: Projection) -> "nn.Module | None":
        """Return a linear map to the teacher's width, by the setting ``projection``."""
        from torch import nn

        student_width = self.student.hidden_size
        teacher_width = self.teachers[0].hidden_size
        if student_width == teacher_width and projection == "auto":
            return None
        return nn.Linear(student_width, teacher_width)


def squared_error(student: "Tensor", teacher: "Tensor") -> "Tensor":
    """Return the sum of the squared differences of two tensors of the same shape."""
    from torch.nn import functional as F

    return F.mse_loss(student, teacher, reduction="sum")


class LogitsSettings(LossSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of losses on logits."""

    # Mean over ``rows`` (torch's ``batchmean``), or over all ``elements`` (torch's ``mean``).
    reduction: Reduction = "rows"
    # On text, ``all`` tokens but padding, or only the ``predicted`` ones.
    positions: Positions = "predicted"
    # The loss term of the student's objective whose logits are compared, such as ``masked-lm`` of
    # a generator; ``None`` for the main model's.
    logits_of: str | None = None


@dataclass(frozen=True)
class LogitRows:
    """The logits of the rows of a batch that a loss compares.

    Attributes:
        student: logits of the student, (n, classes), with a gradient.
        teachers: logits of each teacher, (n, classes), or the largest ones from a cache.
        columns: number of classes that both models have; further ones pad a vocabulary.
        label_tensor: labels of the rows, if the loss declares ``label_types``.
    """

    student: "Logits"
    teachers: "Sequence[Target]"
    columns: int
    label_tensor: "Tensor | None" = None

    @property
    def labels(self) -> "Tensor":
        """The labels of the rows, of one of the ``label_types`` that the loss declares.

        Classes are int64, (n,), with ``IGNORED`` for rows without one; numbers float32, (n,);
        probabilities float32, (n, classes).

        Raises:
            TypeError: the loss declares no ``label_types``.
        """
        if self.label_tensor is None:
            raise TypeError("a loss that reads labels declares them as label_types")
        return self.label_tensor

    def select(self, rows: "Tensor") -> "LogitRows":
        """Return some rows, by their indices."""
        from zoo.distillation.logits import select_targets
        from zoo.nn.row_chunks import select_rows

        teachers = [select_targets(teacher, rows) for teacher in self.teachers]
        labels = None if self.label_tensor is None else self.label_tensor[rows]
        return LogitRows(select_rows(self.student, rows), teachers, self.columns, labels)

    def student_logits(self) -> "Tensor":
        """Return the student's logits, (n, columns), at least float32."""
        from zoo.distillation.logits import dense

        return dense(self.student, self.columns)

    def teacher_logits(self) -> "list[Tensor]":
        """Return the logits of each teacher, (n, columns), at least float32."""
        from zoo.distillation.logits import TopLogits, dense

        all_logits = []
        for logits in self.teachers:
            if not isinstance(logits, TopLogits):
                all_logits.append(dense(logits, self.columns))
        return all_logits


class LogitsLoss(DistillationLoss):
    """Base class of losses on the logits of the objective's loss ``logits_of``.

    A term without ``logits_of`` is a loss for each of the objective's logits.
    """

    needs_head: ClassVar[bool] = True
    averages_teachers: ClassVar[bool] = True
    settings_type: ClassVar[type[LossSettings]] = LogitsSettings
    settings: LogitsSettings

    @override
    @classmethod
    def build(
        cls,
        term: Term,
        objective: "TrainingObjective",
        student: ModelShape,
        teachers: Sequence[ModelShape],
    ) -> list[Self]:
        assert isinstance(term.settings, LogitsSettings), "settings_type is a subclass of it"
        logits_of = term.settings.logits_of
        available = list(objective.loss_weights)
        if logits_of is not None and logits_of not in available:
            raise UsageError(
                f"terms.{term.name}.logits_of is {logits_of!r}, but {objective.name} has no such "
                "loss",
                did_you_mean(logits_of, available) or f"it has {', '.join(available)}",
            )
        compared_terms = objective.scored_terms if logits_of is None else (logits_of,)
        losses: list[Self] = []
        for compared_term in compared_terms:
            name = term.name
            if len(compared_terms) > 1:
                name = f"{term.name}-{compared_term}"
            settings = msgspec.structs.replace(term.settings, logits_of=compared_term)
            single_term = replace(term, name=name, settings=settings)
            losses += super().build(single_term, objective, student, teachers)
        return losses

    @override
    @classmethod
    def settings_for_task(cls, settings: LossSettings) -> LossSettings:
        """Labelled data only has predicted positions."""
        return msgspec.structs.replace(settings, positions="predicted")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.settings.positions == "all" and self.text_objective is None:
            raise UsageError(
                f"terms.{self.term_name}.positions is 'all', and is of text: "
                f"{self.objective.name} has no other positions",
                "leave it out",
            )
        if self.settings.reduction == "elements" and not self.student.classes:
            raise UsageError(
                f"{self.name}: the reduction elements divides by the classes of labelled data",
                f"--set distillation.terms.{self.term_name}.reduction=rows",
            )
        if self.label_types:
            self._require_labels()
        self._require_all_words()

    def _require_all_words(self) -> None:
        """Check that the objective predicts all words, not a sample."""
        if self.text_objective is None:
            return
        if getattr(self.text_objective.options, "num_sampled", None):
            raise UsageError(
                "logits of sampled words cannot be compared",
                "--set objective_args.num_sampled=null predicts all words",
            )

    def _require_labels(self) -> None:
        """Check that each row of logits has a label."""
        if self.logits_of not in self.objective.label_tensors:
            raise UsageError(
                f"terms.{self.term_name}: {self.name} reads labels, and the logits of "
                f"{self.logits_of} have none",
                "compare them with another loss",
            )
        label_type = self.objective.label_type(self.logits_of)
        if label_type not in self.label_types:
            raise UsageError(
                f"terms.{self.term_name}: {self.name} reads labels that are "
                f"{' or '.join(self.label_types)}, and those of {self.logits_of} are {label_type}",
                f"--set distillation.terms.{self.term_name}.weight=0 leaves it out",
            )
        if self.everywhere:
            raise UsageError(
                f"terms.{self.term_name}.positions is 'all', and {self.name} reads labels, which "
                "only predicted tokens have",
                f"--set distillation.terms.{self.term_name}.positions=predicted",
            )

    @property
    def logits_of(self) -> str:
        """The loss term of the student's objective whose logits are compared."""
        assert self.settings.logits_of is not None, "build sets it"
        return self.settings.logits_of

    @property
    def text_objective(self) -> "Objective | None":
        """The student's objective on text; ``None`` for a task on labelled data."""
        from zoo.objectives.base import Objective

        return self.objective if isinstance(self.objective, Objective) else None

    @property
    def everywhere(self) -> bool:
        """``True`` to compare all tokens of text where the objective only scores some."""
        if self.text_objective is None or self.text_objective.scores_all_tokens:
            return False
        return self.settings.positions == "all"

    @property
    @override
    def teacher_output(self) -> TeacherOutput | None:
        return TeacherLogits(self.logits_of, everywhere=self.everywhere)

    @override
    def captured(self, side: Side) -> Layers:
        return {"hidden": {-1}} if self.everywhere else {}

    @override
    def count(self, batch: "Batch") -> int:
        if self.everywhere:
            rows = int(real_tokens(batch.tensors).sum())
        else:
            rows = self.objective.count_logits(batch, self.logits_of)
        if self.settings.reduction == "elements":
            return rows * self.student.classes
        return rows

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: "nn.Module | None"
    ) -> "Tensor":
        return self.distance(self._logit_rows(student, teachers))

    def _logit_rows(self, student: ModelOutput, teachers: Sequence[ModelOutput]) -> LogitRows:
        """Return the logits that are compared."""
        from zoo.distillation.logits import num_classes

        logits = student.logits(self.logits_of, everywhere=self.everywhere)
        targets = [
            teacher.logits(self.logits_of, everywhere=self.everywhere) for teacher in teachers
        ]
        # Classes that only one model has pad its vocabulary.
        columns = min(map(num_classes, (logits, *targets)))
        labels = student.labels(self.logits_of) if self.label_types else None
        return LogitRows(logits, targets, columns, labels)

    @override
    def row_sums(
        self, student: ModelOutput, teachers: Sequence[ModelOutput]
    ) -> "tuple[Tensor, Tensor] | None":
        import torch

        from zoo.objectives.base import SOURCE_IDS

        rows = student.logit_rows(self.logits_of, everywhere=self.everywhere)
        if rows is None:
            return None
        sources = student.batch[SOURCE_IDS]
        counts = torch.bincount(rows, minlength=len(sources))
        if self.settings.reduction == "elements":
            counts = counts * self.student.classes
        sums = torch.zeros(len(sources), dtype=torch.float64, device=sources.device)
        with torch.no_grad():
            logit_rows = self._logit_rows(student, teachers)
            for source in torch.unique(sources):
                selected = (sources[rows] == source).nonzero()[:, 0]
                # The first row of a source has the sum of all its rows.
                first_row = (sources == source).nonzero()[0, 0]
                if len(selected):
                    sums[first_row] = self.distance(logit_rows.select(selected)).double()
        return sums, counts

    @abstractmethod
    def distance(self, rows: LogitRows) -> "Tensor":
        """Return the sum over rows, a scalar with a gradient."""


class LayerSettings(LossSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of losses on layers."""

    layers: LayerMap = "last"  # Layers that are compared.


class LayerLoss(DistillationLoss):
    """Base class of losses that compare layers of the student with layers of one teacher."""

    settings_type: ClassVar[type[LossSettings]] = LayerSettings
    settings: LayerSettings
    pairs: list[tuple[int, int]]  # Layer of the student, layer of the teacher.

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pairs = resolve_layers(
            self.settings.layers, self.student.layers, self.teachers[0].layers
        )

    def layers_of(self, side: Side) -> set[int]:
        """Return the layers of a model that are compared."""
        if side == "student":
            return {student for student, _ in self.pairs}
        return {teacher for _, teacher in self.pairs}


class HiddenSettings(LayerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of losses on hidden states."""

    embeddings: bool = False  # Also compare the output of the embeddings.
    # Map the student's vectors to the teacher's width with a learned linear map: ``auto`` where the
    # widths differ, or ``always``.
    projection: Projection = "auto"


class HiddenLoss(LayerLoss):
    """Base class of losses on hidden states of tokens."""

    settings_type: ClassVar[type[LossSettings]] = HiddenSettings
    settings: HiddenSettings

    def __post_init__(self) -> None:
        super().__post_init__()
        # State 0 is the output of the embeddings, and state i + 1 of layer i.
        self.pairs = [(student + 1, teacher + 1) for student, teacher in self.pairs]
        if self.settings.embeddings:
            self.pairs.insert(0, (0, 0))

    @override
    def new_projection(self) -> "nn.Module | None":
        return self.linear_map(self.settings.projection)

    @override
    def captured(self, side: Side) -> Layers:
        return {"hidden": self.layers_of(side)}

    def tokens(self, batch: "Mapping[str, Tensor]") -> "Tensor":
        """Return which tokens are compared, (rows, tokens), bool."""
        return real_tokens(batch)

    @override
    def count(self, batch: "Batch") -> int:
        return int(self.tokens(batch.tensors).sum())  # Of one layer: layers are summed.

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: "nn.Module | None"
    ) -> "Tensor":
        from zoo.nn.dtypes import at_least_float32
        from zoo.objectives.losses.predictions import gather_positions

        positions = self.tokens(student.batch).flatten().nonzero().squeeze(-1)
        sums = []
        for student_layer, teacher_layer in self.pairs:
            state = gather_positions(student.hidden(student_layer), positions)
            target = gather_positions(teachers[0].hidden(teacher_layer), positions)
            mapped = state if projection is None else projection(state)
            sums.append(self.distance(at_least_float32(mapped), at_least_float32(target)))
        return sum(sums[1:], sums[0])

    @staticmethod
    @abstractmethod
    def distance(student: "Tensor", teacher: "Tensor") -> "Tensor":
        """Return the sum over (n, width)."""


class AttentionLoss(LayerLoss):
    """Base class of losses on attention."""

    captures: ClassVar[str] = "attention_scores"  # Argument of ``capture``.

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(shape.heads for shape in (self.student, *self.teachers)):
            raise UsageError(f"{self.name} compares attention, and a model has none")

    @override
    def captured(self, side: Side) -> Layers:
        return {self.captures: self.layers_of(side)}

    def allowed(self, batch: "Mapping[str, Tensor]") -> "Tensor":
        """Return which keys each query may attend to, (rows, 1, tokens, tokens), bool."""
        return attention_pairs(batch, causal=self.student.causal)

    def require_equal_heads(self, remedy: str) -> None:
        """Check that both models have the same number of heads."""
        student_heads = self.student.heads
        teacher_heads = self.teachers[0].heads
        if student_heads != teacher_heads:
            raise UsageError(
                f"{self.name} compares heads, and the student has {student_heads}, "
                f"the teacher {teacher_heads}",
                remedy,
            )


class AttentionScoresLoss(AttentionLoss):
    """Base class of losses on the attention scores of single heads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_equal_heads(
            "relations with relation_heads compares models with different numbers of heads"
        )

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: "nn.Module | None"
    ) -> "Tensor":
        allowed = self.allowed(student.batch)
        sums = []
        for student_layer, teacher_layer in self.pairs:
            scores = student.attention_scores(student_layer)
            target = teachers[0].attention_scores(teacher_layer)
            sums.append(self.distance(scores, target, allowed))
        return sum(sums[1:], sums[0])

    @staticmethod
    @abstractmethod
    def distance(student: "Tensor", teacher: "Tensor", pairs: "Tensor") -> "Tensor":
        """Return the sum over (rows, heads, tokens, tokens) where ``pairs`` attend."""


class EmbeddingSettings(LossSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of losses on embeddings of texts."""

    # Mean over ``rows`` (torch's ``batchmean``), or over all ``elements`` (torch's ``mean``).
    reduction: Reduction = "rows"
    # Map the student's vectors to the teacher's width with a learned linear map: ``auto`` where the
    # widths differ, or ``always``.
    projection: Projection = "auto"


class TextEmbeddingLoss(DistillationLoss):
    """Base class of squared errors of text embeddings; several teachers are averaged."""

    averages_teachers: ClassVar[bool] = True
    settings_type: ClassVar[type[LossSettings]] = EmbeddingSettings
    settings: EmbeddingSettings

    @property
    @abstractmethod
    @override
    def teacher_output(self) -> HeadEmbeddings | TextEmbeddings:
        """The embeddings that are compared."""

    @override
    def new_projection(self) -> "nn.Module | None":
        return self.linear_map(self.settings.projection)

    def num_texts(self, batch: "Batch") -> int:
        """Return the number of texts of a batch."""
        return int(first_tokens(batch.tensors).sum())

    @override
    def count(self, batch: "Batch") -> int:
        texts = self.num_texts(batch)
        if self.settings.reduction == "elements":
            return texts * self.teachers[0].hidden_size
        return texts

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: "nn.Module | None"
    ) -> "Tensor":
        from zoo.nn.dtypes import at_least_float32

        vectors = self.teacher_output.embeddings(student)
        targets = [self.teacher_output.embeddings(teacher) for teacher in teachers]
        mapped = vectors if projection is None else projection(vectors)
        mean = sum(targets[1:], targets[0]) / len(targets)
        return squared_error(at_least_float32(mapped), mean)
