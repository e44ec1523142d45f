"""Base classes of losses: for logits, layers, attention and embeddings."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self, TypeVar, dataclass_transform

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.distillation.layer_maps import resolve_layers
from zoo.distillation.logits import Target, num_classes
from zoo.distillation.outputs import ModelOutput, attention_pairs, first_tokens, real_tokens
from zoo.errors import UsageError, did_you_mean
from zoo.families.distillation import LayerMap, Term
from zoo.nn.dtypes import at_least_float32
from zoo.nn.kernels.row_chunks import Logits
from zoo.objectives.base import Batch, Objective, TrainingObjective
from zoo.objectives.losses.predictions import gather_positions
from zoo.overrides import override

Side = Literal["student", "teacher"]
Layers = dict[str, set[int]]  # argument of ``capture`` -> indices
Reduction = Literal["rows", "elements"]


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model that losses depend on."""

    layers: int  # 0 for a model without layers
    hidden_size: int
    heads: int  # of attention; 0 for none
    classes: int  # of labelled data; 0 for a language model
    causal: bool  # tokens only attend to earlier ones


@dataclass(kw_only=True)
class DistillationLoss(ABC):
    """A loss that compares a student with its teachers.

    A subclass is one loss, in a module of its own and with the decorator ``distillation_loss``. The
    fields that it adds are its settings, with names of fields of ``Term``; a recipe that sets
    another field of the term is refused.
    """

    kind: ClassVar[str]  # name of the loss, which recipes give as ``kind`` of a term
    needs_head: ClassVar[bool] = False  # compares outputs of the head

    name: str  # in logs and in ``loss_weights``
    weight: float  # in the total loss
    objective: TrainingObjective  # the student's objective or task
    student: ModelShape
    teachers: Sequence[ModelShape]

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the names of the settings: the fields of a term that the loss reads."""
        inherited = {field.name for field in dataclasses.fields(DistillationLoss)}
        own = (field.name for field in dataclasses.fields(cls) if field.init)
        return tuple(name for name in own if name not in inherited)

    @classmethod
    def of_term(
        cls,
        name: str,
        term: Term,
        objective: TrainingObjective,
        student: ModelShape,
        teachers: Sequence[ModelShape],
    ) -> Iterator[Self]:
        """Yield the losses of a recipe's term, by default one; may raise ``UsageError``."""
        yield cls(
            name=name,
            weight=term.weight,
            objective=objective,
            student=student,
            teachers=teachers,
            **{setting: getattr(term, setting) for setting in cls.settings()},
        )

    def captured(self, side: Side) -> Layers:
        """Return the layers that the loss reads, by argument of ``zoo.nn.capture.capture``."""
        return {}

    def new_projection(self) -> nn.Module | None:
        """Return an untrained linear map from the student's width to the teacher's, if needed."""
        return None

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """Return the number by which the sum over a batch is divided."""

    @abstractmethod
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: nn.Module | None
    ) -> Tensor:
        """Return the sum over a batch, a scalar with a gradient.

        Args:
            student: outputs of the student.
            teachers: outputs of the teachers, without gradients.
            projection: the module that ``new_projection`` returned, trained so far.
        """

    def metrics(self, teachers: Sequence[ModelOutput]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return additional metrics of a batch as (sum, count); by default none."""
        return {}


LOSSES: dict[str, type[DistillationLoss]] = {}  # by name, as far as their modules are imported
L = TypeVar("L", bound=DistillationLoss)


@dataclass_transform(kw_only_default=True)
def distillation_loss(name: str) -> Callable[[type[L]], type[L]]:
    """Return the decorator that registers a loss, and makes its class a dataclass."""

    def register(cls: type[L]) -> type[L]:
        cls.kind = name
        LOSSES[name] = dataclass(kw_only=True)(cls)
        return cls

    return register


def squared_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the sum of the squared differences of two tensors of the same shape."""
    return F.mse_loss(student, teacher, reduction="sum")


@dataclass(kw_only=True)
class LogitsLoss(DistillationLoss):
    """Base class of losses on the logits of the objective's loss ``logits_of``."""

    needs_head: ClassVar[bool] = True
    positions: Literal["all", "predicted"]
    reduction: Reduction
    logits_of: str

    @override
    @classmethod
    def of_term(
        cls,
        name: str,
        term: Term,
        objective: TrainingObjective,
        student: ModelShape,
        teachers: Sequence[ModelShape],
    ) -> Iterator[Self]:
        known = list(objective.loss_weights)
        if term.logits_of is not None and term.logits_of not in known:
            raise UsageError(
                f"terms.{name}.logits_of is {term.logits_of!r}, but {objective.name} has no such "
                "loss",
                did_you_mean(term.logits_of, known) or f"it has {', '.join(known)}",
            )
        compared = objective.scored_terms if term.logits_of is None else (term.logits_of,)
        for of in compared:
            own = f"{name}-{of}" if len(compared) > 1 else name
            (loss,) = super().of_term(own, term, objective, student, teachers)
            loss.logits_of = of
            yield loss

    def __post_init__(self) -> None:
        if self.reduction == "elements" and not self.student.classes:
            raise UsageError(
                f"{self.kind}: the reduction elements divides by the classes of labelled data",
                f"--set distillation.terms.{self.name}.reduction=rows",
            )
        options = self.objective.options if isinstance(self.objective, Objective) else None
        if getattr(options, "num_sampled", None):
            raise UsageError(
                "logits of sampled words cannot be compared",
                "--set objective_args.num_sampled=null predicts all words",
            )

    @property
    def everywhere(self) -> bool:
        """``True`` to compare all tokens of text where the objective only scores some."""
        some = isinstance(self.objective, Objective) and not self.objective.scores_all_tokens
        return some and self.positions == "all"

    @override
    def captured(self, side: Side) -> Layers:
        return {"hidden": {-1}} if self.everywhere else {}

    @override
    def count(self, batch: Batch) -> int:
        if self.everywhere:
            rows = int(real_tokens(batch.tensors).sum())
        else:
            rows = self.objective.count_logits(batch, self.logits_of)
        return rows * (self.student.classes if self.reduction == "elements" else 1)

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: nn.Module | None
    ) -> Tensor:
        logits, *targets = (
            output.logits(self.logits_of, everywhere=self.everywhere)
            for output in (student, *teachers)
        )
        # classes that only one model has pad its vocabulary
        return self.distance(logits, targets, min(map(num_classes, (logits, *targets))))

    @abstractmethod
    def distance(self, student: Logits, teachers: Sequence[Target], columns: int) -> Tensor:
        """Return the sum over rows of logits, (n, classes); only the first ``columns`` count."""


@dataclass(kw_only=True)
class ProjectedLoss(DistillationLoss):
    """Base class of losses on vectors; a linear map projects the student's if widths differ."""

    projection: Literal["auto", "always"]

    @override
    def new_projection(self) -> nn.Module | None:
        widths = self.student.hidden_size, self.teachers[0].hidden_size
        return None if widths[0] == widths[1] and self.projection == "auto" else nn.Linear(*widths)


@dataclass(kw_only=True)
class LayerLoss(DistillationLoss):
    """Base class of losses that compare layers of the student with layers of one teacher."""

    layers: LayerMap
    pairs: list[tuple[int, int]] = field(init=False)  # layer of the student, layer of the teacher

    def __post_init__(self) -> None:
        if len(self.teachers) > 1:
            raise UsageError(
                f"{self.kind} compares layers, and there are {len(self.teachers)} teachers",
                "only kl, logits-mse and embeddings average several teachers",
            )
        self.pairs = resolve_layers(self.layers, self.student.layers, self.teachers[0].layers)


@dataclass(kw_only=True)
class HiddenLoss(LayerLoss, ProjectedLoss):
    """Base class of losses on hidden states of tokens."""

    embeddings: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pairs = [(a + 1, b + 1) for a, b in self.pairs]  # state 0 follows the embeddings
        if self.embeddings:
            self.pairs.insert(0, (0, 0))

    @override
    def captured(self, side: Side) -> Layers:
        return {"hidden": {pair[side == "teacher"] for pair in self.pairs}}

    def tokens(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return which tokens are compared, (rows, tokens), bool."""
        return real_tokens(batch)

    @override
    def count(self, batch: Batch) -> int:
        return int(self.tokens(batch.tensors).sum())  # in one layer: layers are summed

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: nn.Module | None
    ) -> Tensor:
        positions = self.tokens(student.batch).flatten().nonzero().squeeze(-1)
        sums = []
        for first, second in self.pairs:
            state = gather_positions(student.hidden(first), positions)
            target = gather_positions(teachers[0].hidden(second), positions)
            mapped = state if projection is None else projection(state)
            sums.append(self.distance(at_least_float32(mapped), at_least_float32(target)))
        return sum(sums[1:], sums[0])

    @staticmethod
    @abstractmethod
    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        """Return the sum over (n, width)."""


@dataclass(kw_only=True)
class AttentionLoss(LayerLoss):
    """Base class of losses on attention."""

    captures: ClassVar[str] = "attention_scores"  # argument of ``capture``

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(shape.heads for shape in (self.student, *self.teachers)):
            raise UsageError(f"{self.kind} compares attention, and a model has none")

    @override
    def captured(self, side: Side) -> Layers:
        return {self.captures: {pair[side == "teacher"] for pair in self.pairs}}

    def allowed(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return which keys each query may attend to, (rows, 1, tokens, tokens), bool."""
        return attention_pairs(batch, causal=self.student.causal)

    def require_equal_heads(self, remedy: str) -> None:
        """Check that both models have the same number of heads."""
        counts = self.student.heads, self.teachers[0].heads
        if counts[0] != counts[1]:
            raise UsageError(
                f"{self.kind} compares heads, and the student has {counts[0]}, "
                f"the teacher {counts[1]}",
                remedy,
            )


@dataclass(kw_only=True)
class AttentionScoresLoss(AttentionLoss):
    """Base class of losses on the attention scores of single heads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_equal_heads(
            "relations with relation_heads compares models with different numbers of heads"
        )

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: nn.Module | None
    ) -> Tensor:
        pairs = self.allowed(student.batch)
        sums = [
            self.distance(student.attention_scores(a), teachers[0].attention_scores(b), pairs)
            for a, b in self.pairs
        ]
        return sum(sums[1:], sums[0])

    @staticmethod
    @abstractmethod
    def distance(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
        """Return the sum over (rows, heads, tokens, tokens) where ``pairs`` attend."""


@dataclass(kw_only=True)
class EmbeddingLoss(ProjectedLoss):
    """Base class of squared errors of text embeddings; several teachers are averaged."""

    reduction: Reduction

    @abstractmethod
    def embeddings(self, output: ModelOutput) -> Tensor:
        """Return the embedding of each text, (texts, width)."""

    def num_texts(self, batch: Batch) -> int:
        """Return the number of texts of a batch."""
        return int(first_tokens(batch.tensors).sum())

    @override
    def count(self, batch: Batch) -> int:
        width = self.teachers[0].hidden_size if self.reduction == "elements" else 1
        return self.num_texts(batch) * width

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: nn.Module | None
    ) -> Tensor:
        vectors = self.embeddings(student)
        targets = [self.embeddings(teacher) for teacher in teachers]
        mapped = vectors if projection is None else projection(vectors)
        return squared_error(at_least_float32(mapped), sum(targets[1:], targets[0]) / len(targets))
