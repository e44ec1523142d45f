"""What every objective provides: rows from a corpus, and a loss from a batch of rows.

An objective works in two halves. In numpy, it lays out a corpus in rows of fixed length, and
makes one row at a time: a function of the row's number and of random numbers that are drawn for
this row of this step. In torch, it compares what a model says of a batch with what is right.

A loss is returned as terms, each a *sum* and the *count* of what was summed. How many there are
follows from the data, before anything is computed: the engine divides by the count of the whole
step, over all its micro-batches and ranks, so that how a batch is split changes nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from zoo.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Split
    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.objectives.examples.vocabulary import TokenizerView

Array = NDArray[np.int64]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what can be chosen about an objective."""

    def check_fraction(self, name: str, *, ends: bool = False) -> None:
        """Refuse a share that is none.

        Args:
            name: of the field.
            ends: whether it may be nothing, or all.

        Raises:
            ValueError: it is not between 0 and 1.
        """
        value = getattr(self, name)
        if not (0 < value < 1 or (ends and value in (0, 1))):
            raise ValueError(f"{name} is {value}, which is not between 0 and 1")


@dataclass(frozen=True)
class Example:
    """One row of a batch.

    Attributes:
        arrays: name -> one value for each place of the row, (length,); all rows of a run have
            the same planes and lengths.
        values: name -> as many values as the row happens to have, such as the labels of masked
            tokens.
        positions: name -> a plane, and places in it, as many as the row happens to have. In a
            batch they count through all rows of that plane.
        counts: loss term -> how many of this row its sum is over.
    """

    arrays: Mapping[str, NDArray[Any]]
    values: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    positions: Mapping[str, tuple[str, Array]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """Rows, side by side.

    Attributes:
        tensors: planes as (rows, length); values and places of all rows as (n,).
        counts: loss term -> how many its sum is over.
        rows: how many rows.
        tokens: how many places of them are no padding, those that a decoder reads included.
    """

    tensors: "dict[str, Tensor]"
    counts: dict[str, int]
    rows: int
    tokens: int


@dataclass(frozen=True)
class LossOutput:
    """What an objective says of a batch.

    Attributes:
        sums: loss term -> its sum over the batch, a scalar that gradients flow from.
        metrics: name -> a sum and a count, scalars without gradients.
        recurrent_state: hidden state that the model carries to the next step, detached,
            (rows, ...) each; it is added to the tensors of that step's batch.
    """

    sums: "dict[str, Tensor]"
    metrics: "dict[str, tuple[Tensor, Tensor]]" = field(default_factory=dict)
    recurrent_state: "dict[str, Tensor]" = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedModel:
    """A network that a run leaves behind.

    Attributes:
        module: its weights.
        config: the family's configuration.
        head: its head.
    """

    module: "nn.Module"
    config: "Config"
    head: str


class ExampleDataset(ABC):
    """A corpus laid out in rows, for one objective and seed."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many rows there are."""

    @abstractmethod
    def example(self, index: int, rng: np.random.Generator) -> Example:
        """Make a row.

        Args:
            index: which one.
            rng: for all that is drawn.
        """


class Objective(ABC):
    """Something to learn from text.

    Args:
        vocabulary: the tokenizer's.
        config: the model's configuration.
        length: places in a row.
        options: what was chosen, of the type ``options_type``.

    Attributes:
        name: what ``--objective`` calls it.
        head: the head of the model that it teaches.
        options_type: what can be chosen.
        loss_weights: loss term -> its weight in the sum that is minimised.
        stateful: whether rows go on where those of the step before ended, and the model keeps
            its state between steps.
        char_inputs: whether the model reads tokens by their characters; the corpus may then have
            a larger vocabulary than the model predicts.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    options_type: ClassVar[type[Options]] = Options
    stateful: ClassVar[bool] = False
    char_inputs: ClassVar[bool] = False

    def __init__(
        self, vocabulary: "TokenizerView", config: "Config", length: int, options: Any = None
    ) -> None:
        self.vocabulary, self.config, self.length = vocabulary, config, length
        self.options: Any = self.options_type() if options is None else options

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> its weight; here one term, named like the objective."""
        return {self.name: 1.0}

    @classmethod
    def unsupported_reason(cls, family: "Family", config: "Config") -> str | None:
        """Say why a model cannot be taught this, or ``None`` if it can; here it needs the head."""
        if cls.head in family.heads():
            return None
        return f"{family.name} has no head {cls.head!r}"

    @abstractmethod
    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        """Lay out a corpus.

        Raises:
            UsageError: it does not suit the objective, such as one without sentence pairs.
        """

    @abstractmethod
    def compute_loss(self, model: "nn.Module", tensors: "Mapping[str, Tensor]") -> LossOutput:
        """Compare what a model says with what is right.

        Args:
            model: what ``learner`` returned, perhaps wrapped for several devices.
            tensors: those of a ``Batch``, on the model's device.
        """

    def model(self, family: "Family", config: "Config") -> "nn.Module":
        """Build what is trained; here the model with its head."""
        return family.model(config, self.head)

    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        """Return what a run leaves behind; here the model.

        The first, called ``model``, is what the run was for.
        """
        return {"model": TrainedModel(model, self.config, self.head)}

    def after_load(
        self, model: "nn.Module", models: Mapping[str, TrainedModel], loaded: Collection[str]
    ) -> "list[Tensor]":
        """Let what depends on weights follow, after networks were given other ones; here nothing.

        Args:
            model: what ``learner`` returned.
            models: what ``networks`` returned for it.
            given: the names of those whose weights were set.

        Returns:
            the learner's tensors that were set here.
        """
        return []

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Stack examples into a batch; tokens with a ``document_ids`` of 0 are padding."""
        import torch

        first = examples[0]
        arrays = {name: np.stack([row.arrays[name] for row in examples]) for name in first.arrays}
        for name in first.values:
            arrays[name] = np.concatenate([row.values[name] for row in examples])
        for name, (plane, _) in first.positions.items():
            stride = first.arrays[plane].shape[0]
            arrays[name] = np.concatenate(
                [row.positions[name][1] + k * stride for k, row in enumerate(examples)]
            )
        return Batch(
            tensors={name: torch.from_numpy(array) for name, array in arrays.items()},
            counts={
                term: sum(row.counts.get(term, 0) for row in examples) for term in self.loss_weights
            },
            rows=len(examples),
            tokens=sum(
                int(np.count_nonzero(array))
                for name, array in arrays.items()
                if name.endswith("document_ids")
            ),
        )


def gather_positions(hidden: "Tensor", positions: "Tensor") -> "Tensor":
    """Return the vectors at some places: (batch, tokens, width) to (n, width)."""
    return hidden.flatten(0, 1).index_select(0, positions)


def masked_token_loss(
    model: Any, hidden: "Tensor", tensors: "Mapping[str, Tensor]", term: str
) -> LossOutput:
    """Score the tokens that are to be told, and those alone.

    Args:
        model: with ``scores``: (n, width) to (n, vocabulary).
        hidden: (batch, tokens, width).
        tensors: with ``places`` of these tokens in ``hidden``, and what stands there as
            ``labels``, (n,) each.
        term: name of the loss term.
    """
    scores = model.scores(gather_positions(hidden, tensors["places"])).float()
    return cross_entropy_sum(scores, tensors["labels"], term)


def cross_entropy_sum(logits: "Tensor", labels: "Tensor", term: str) -> LossOutput:
    """Compare scores with what is right.

    Args:
        scores: (n, vocabulary), float32.
        labels: (n,).
        term: name of the loss term.
    """
    from torch.nn import functional as F

    right = (logits.detach().argmax(-1) == labels).sum()
    return LossOutput(
        sums={term: F.cross_entropy(logits, labels, reduction="sum")},
        metrics={"accuracy": (right, right.new_tensor(len(labels)))},
    )


def parse_options(
    options_type: type[Options], values: Mapping[str, Any], objective: str
) -> Options:
    """Read what was chosen about an objective.

    Raises:
        UsageError: an option is unknown (the nearest is named) or of the wrong type.
    """
    known = [each.encode_name for each in msgspec.structs.fields(options_type)]
    for name in values:
        if name not in known:
            raise UsageError(
                f"the objective {objective} has no option {name!r}",
                did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}",
            )
    try:
        return msgspec.convert(dict(values), options_type)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the objective {objective}: {error}") from error
