"""The interface of training objectives: dataset, collation, forward pass and loss.

A dataset of a pretraining objective packs a corpus into rows of fixed length with NumPy; an example
is a pure function of its index and a random generator that is keyed by seed, step and row.
``forward`` and ``loss`` run in torch.

A loss is a set of terms, each a *sum* and a *count*; the count of a weighted mean is the sum of its
weights. The counts follow from the data, before any forward pass: the trainer divides by the count
of the whole step, over all micro-batches and ranks, so that the split of a batch does not change
the gradients.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from zoo.families.tasks import LabelType
from zoo.objectives.options import Options

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Split
    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.nn.heads import VocabularyProjection
    from zoo.objectives.examples.vocabulary import TokenizerView
    from zoo.sentence_models.pooling import Pooling

Array = NDArray[np.int64]
SOURCE_IDS = "source_ids"  # Tensor of a batch with the number of each row's source, (rows,).


@dataclass(frozen=True)
class Example:
    """One packed row.

    Attributes:
        arrays: name -> one value per token, (length,); names and lengths are the same in all rows
            of a dataset.
        values: name -> a variable number of values, such as the labels of masked tokens, (n,).
        positions: name -> name of an array and indices into it, (n,); ``collate`` turns them into
            indices into the flattened (rows * length,) array.
        counts: loss term -> number of values that the row adds to the sum of the term, or the sum
            of their weights.
    """

    arrays: Mapping[str, NDArray[Any]]
    values: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    positions: Mapping[str, tuple[str, Array]] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceCounts:
    """The part of a batch that is from one of a run's sources.

    Attributes:
        rows: number of rows.
        counts: loss term -> number of values that these rows add to its sum, or the sum of their
            weights.
    """

    rows: int
    counts: Mapping[str, float]


@dataclass(frozen=True)
class Batch:
    """Collated rows, of one micro-batch.

    Attributes:
        tensors: ``arrays`` of the examples as (rows, length); ``values`` and ``positions`` as
            (n,), concatenated over rows.
        counts: loss term -> number of values that its sum is over, or the sum of their weights.
        rows: number of rows.
        tokens: number of tokens that are not padding, of the encoder and the decoder.
        sources: source -> its part of the batch, in the order of ``source_ids``; empty where a run
            has no sources.
    """

    tensors: "dict[str, Tensor]"
    counts: dict[str, float]
    rows: int
    tokens: int
    sources: Mapping[str, SourceCounts] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The only source of the rows, of a batch of an evaluation; empty without sources."""
        return next((name for name, part in self.sources.items() if part.rows), "")


@dataclass(frozen=True)
class Outputs:
    """Results of a forward pass.

    Attributes:
        logits: loss term -> logits, float32, (n, classes) or (rows, length). Those over a
            vocabulary are a ``VocabularyProjection`` where they are too many to be held at once,
            see ``zoo.objectives.losses.cross_entropy``.
        labels: loss term -> labels that only the forward pass determines, such as which tokens a
            generator replaced; all others are in the batch.
        recurrent_state: hidden state that the model carries to the next step, detached,
            (rows, ...) each; it is added to the tensors of that step's batch.
        inputs: tensors that the main model read in place of the batch's, such as tokens that
            a generator sampled.
    """

    logits: "dict[str, Any]"
    labels: "dict[str, Tensor]" = field(default_factory=dict)
    recurrent_state: "dict[str, Tensor]" = field(default_factory=dict)
    inputs: "dict[str, Tensor]" = field(default_factory=dict)


@dataclass(frozen=True)
class LossOutput:
    """Loss terms and metrics of a batch.

    Attributes:
        sums: loss term -> sum over the batch, a scalar with gradient.
        metrics: name -> sum and count, scalars without gradient.
        recurrent_state: see ``Outputs``.
        predictions: name -> values for ``TrainingObjective.compute_metrics``, (n, ...) each,
            without gradient; an evaluation keeps them on the CPU.
        row_sums: loss term -> part of its sum of each row, (rows,), without gradient, for the log
            of a run with several sources; only of batches with ``source_ids``. A term without
            them has no loss of each source in the log of training.
        row_counts: loss term -> part of its count of each row, (rows,), of terms in ``row_sums``
            that examples do not count.
    """

    sums: "dict[str, Tensor]"
    metrics: "dict[str, tuple[Tensor, Tensor]]" = field(default_factory=dict)
    recurrent_state: "dict[str, Tensor]" = field(default_factory=dict)
    predictions: "dict[str, Tensor]" = field(default_factory=dict)
    row_sums: "dict[str, Tensor]" = field(default_factory=dict)
    row_counts: "dict[str, Tensor]" = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedModel:
    """A model that a run saves at its end."""

    module: "nn.Module"  # The model, with the trained weights.
    config: "Config"
    head: str
    pooling: "Pooling | None" = None  # Pooling of a sentence encoder; ``None`` for other models.
    # Further fields of ``config.json``, which the task declares; tensors are written as lists.
    fields: Mapping[str, Any] = field(default_factory=dict)
    # Modules of a sentence encoder with weights of their own, whose names begin with the folder in
    # which the checkpoint has them, such as ``2_Dense.linear.weight``.
    modules: "nn.Module | None" = None


class ExampleSource(ABC):
    """Rows by index; a stream of them has no end."""

    @abstractmethod
    def example(self, index: int, rng: np.random.Generator) -> Example:
        """Return the example of a row.

        Args:
            index: index of the row.
            rng: random generator of this use of the row.
        """


class ExampleDataset(ExampleSource):
    """A corpus packed into rows, for one objective and seed."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    def cut_lines(self) -> list[str]:
        """Return what a run says at its end about texts that were cut; by default nothing."""
        return []


class TrainingObjective(ABC):
    """Base class of objectives of pretraining and tasks of fine-tuning.

    Attributes:
        name: name of the objective or task.
        head: head of the model that is trained.
        config: configuration of the model.
        loss_weights: loss term -> weight in the total loss.
        stateful: whether row i of a step continues row i of the step before, and the model carries
            its hidden state from one step to the next.
        metric_for_best_model: value of an evaluation that selects the best checkpoint: ``loss``, or
            the name of a metric.
        greater_is_better: whether a higher value of it is better.
        uses_all_parameters: whether each parameter that is trained has a gradient in every step.
        logits_per_count: number of rows of ``scored_logits`` for each of a term's count; below 1
            where a term counts the classes of a row.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    stateful: ClassVar[bool] = False
    logits_per_count: float = 1.0
    uses_all_parameters: bool = True
    config: "Config"
    metric_for_best_model: str = "loss"
    greater_is_better: bool = False

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> weight in the total loss; by default one term, named like the objective."""
        return {self.name: 1.0}

    @property
    def scored_terms(self) -> tuple[str, ...]:
        """Names of the loss terms that ``scored_logits`` has logits of; by default all."""
        return tuple(self.loss_weights)

    @property
    def label_tensors(self) -> Mapping[str, str]:
        """Loss term -> tensor with the labels of its ``scored_logits``.

        It is a tensor of the batch, or of ``Outputs.inputs`` where ``forward`` makes the labels.
        The tensor has the class or number of each row of the logits, (n,), the numbers of each row,
        (n, classes), float32, or the class of each token, (rows, tokens), int64, with ``IGNORED``
        for tokens without logits. Losses of distillation may read it. By default no term has one.
        """
        return {}

    def label_type(self, term: str) -> LabelType:
        """Return what the labels of a term of ``label_tensors`` are, by default classes."""
        return "classes"

    @classmethod
    def unsupported_reason(cls, family: "Family", config: "Config") -> str | None:
        """Return why a model does not support the objective, or ``None``; here: the head."""
        if cls.head in family.heads():
            return None
        return f"{family.name} has no head {cls.head!r}"

    def model(self, family: "Family", config: "Config") -> "nn.Module":
        """Return the module to train, with new weights; by default the model with its head."""
        return family.model(config, self.head)

    def begin_step(  # noqa: B027 (optional)
        self, model: "nn.Module", step: int, max_steps: int
    ) -> None:
        """Prepare for a step; by default nothing.

        Called before each of ``max_steps`` steps, also before the first one after a resume, so that
        stages of training are functions of ``step``, the number of steps done. ``model`` is what
        ``self.model`` returned.
        """

    def stage(self, step: int, max_steps: int) -> str:
        """Return what a step trains, if the stages of a run differ; by default an empty text."""
        return ""

    @abstractmethod
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Run what ``self.model`` returned on the tensors of a ``Batch``, on the model's device."""

    @abstractmethod
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the loss terms and metrics of a batch from the outputs of ``forward``."""

    def scored_logits(
        self, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor | VocabularyProjection]":
        """Return the logits that the counts of the loss terms are over, (n, classes) each, by term.

        By default from what ``forward`` returned; ``batch`` has its tensors.
        """
        return outputs.logits

    def scored_rows(self, batch: "Mapping[str, Tensor]", term: str) -> "Tensor | None":
        """Return the row of the batch of each of ``scored_logits`` of a loss term, (n,), int64.

        ``None``, as by default, if it is not known; then losses of distillation on these logits
        have no training loss of each source. ``batch`` has ``source_ids``.
        """
        return None

    def count_logits(self, batch: Batch, term: str) -> int:
        """Return the number of rows of ``scored_logits`` of a loss term in a batch."""
        return round(batch.counts[term] * self.logits_per_count)

    def generated_predictions(
        self, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        """Return predictions of an evaluation that need more forward passes; by default none."""
        return {}

    def loss_with_auxiliary(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Return ``loss`` with the auxiliary terms that ``forward`` computed; by default none.

        An auxiliary term is a sum in ``outputs.logits``, since it needs hidden states of all
        tokens, which ``loss`` does not have.
        """
        return self.loss(outputs, batch)

    def compute_loss(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> LossOutput:
        """Return the loss terms of a batch, in evaluations with all predictions."""
        output = self.loss_with_auxiliary(self.forward(model, batch), batch)
        if model.training:
            return output
        generated = self.generated_predictions(model, batch)
        if not generated:
            return output
        return replace(output, predictions=output.predictions | generated)

    def finish_evaluation(  # noqa: B027 (optional)
        self, model: "nn.Module", predictions: "Mapping[str, Tensor]"
    ) -> None:
        """Update weights that follow from the outputs of a whole evaluation; by default nothing.

        Args:
            model: what ``self.model`` returned.
            predictions: see ``compute_metrics``.
        """

    def compute_metrics(self, predictions: "Mapping[str, Tensor]") -> dict[str, float]:
        """Return metrics of a whole evaluation that are no means over samples; by default none.

        Args:
            predictions: ``LossOutput.predictions`` of all batches and ranks, concatenated. A
                sample may occur several times, each equally often.
        """
        return {}

    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        """Return the models that a run saves at its end, by name.

        The main one is called ``model``; by default it is the only one.
        """
        return {"model": TrainedModel(model, self.config, self.head)}

    def after_load(
        self, model: "nn.Module", models: Mapping[str, TrainedModel], loaded: Collection[str]
    ) -> "list[Tensor]":
        """Update tensors that depend on weights after pretrained weights were loaded.

        ``models`` is what ``models_to_save`` returned for ``model``, and ``loaded`` names those
        whose weights were loaded. Returns the tensors of ``model`` that were set here; by default
        none.
        """
        return []

    def max_values(self, batch: Batch) -> dict[str, int]:
        """Return the largest number of values per row, by the name of a tensor of ``values``.

        Only the tensors whose number of values differs from batch to batch are in it, including
        ``positions``; by default none. See ``zoo.training.devices``.
        """
        return {}

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Stack examples into a batch; tokens with a ``document_ids`` of 0 are padding."""
        import torch

        first = examples[0]
        arrays = {}
        for name in first.arrays:
            arrays[name] = np.stack([row.arrays[name] for row in examples])
        for name in first.values:
            arrays[name] = np.concatenate([row.values[name] for row in examples])
        for name, (array_name, _) in first.positions.items():
            length = first.arrays[array_name].shape[0]
            positions = []
            for number, row in enumerate(examples):
                positions.append(row.positions[name][1] + number * length)
            arrays[name] = np.concatenate(positions)
        counts = {}
        for term in self.loss_weights:
            counts[term] = sum(row.counts.get(term, 0) for row in examples)
        tokens = 0
        for name, array in arrays.items():
            if name.endswith("document_ids"):
                tokens += int(np.count_nonzero(array))
        return Batch(
            tensors={name: torch.from_numpy(array) for name, array in arrays.items()},
            counts=counts,
            rows=len(examples),
            tokens=tokens,
        )


class Objective(TrainingObjective):
    """Base class of pretraining objectives.

    Args:
        vocabulary: the tokenizer's vocabulary.
        config: configuration of the model.
        length: number of tokens per row.
        options: options of type ``options_type``.

    Attributes:
        name: value of ``--objective``.
        options_type: type of the options.
        from_scratch_options: names of options that replace initial weights in the run; runs from
            pretrained weights refuse them, and do without the recipe's.
        scores_all_tokens: whether ``scored_logits`` has all tokens of text.
        char_inputs: whether the model reads tokens by their characters; the corpus may then have
            a larger vocabulary than the model predicts.
    """

    options_type: ClassVar[type[Options]] = Options
    from_scratch_options: ClassVar[tuple[str, ...]] = ()
    char_inputs: ClassVar[bool] = False
    scores_all_tokens: ClassVar[bool] = False

    def __init__(
        self, vocabulary: "TokenizerView", config: "Config", length: int, options: Any = None
    ) -> None:
        self.vocabulary = vocabulary
        self.config = config
        self.length = length
        self.options: Any = self.options_type() if options is None else options

    @property
    def token_terms(self) -> Mapping[str, tuple[str, str]]:
        """Loss term -> names of the positions and labels of the tokens that it predicts.

        They are in ``positions`` and ``values`` of an ``Example``, and tensors of a batch. By
        default ``label_positions`` and ``labels``, which an objective need not have.
        """
        return {self.name: ("label_positions", "labels")}

    @property
    def visible_labels(self) -> Mapping[str, float]:
        """Loss term -> share of its predictions that may depend on their own label, by design.

        That is the share of the predicted tokens that the model reads as they are, such as
        selected tokens that are not masked. By default 0 for all terms: a prediction
        that depends on its label is a mistake, which ``zoo plugins check --full`` looks for.
        """
        return {}

    @abstractmethod
    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        """Pack a split of a corpus into rows.

        Args:
            split: the documents.
            seed: seed of the run, for the order of the documents.

        Raises:
            UsageError: the corpus does not suit the objective, such as one without sentence pairs.
        """

    def block_dataset(
        self, split: "Split", seed: int, example_rows: ExampleDataset
    ) -> ExampleDataset | None:
        """Pack a block of a stream into rows; ``None`` if it has text, but nothing to learn from.

        By default, a block is packed as a corpus is.

        Args:
            split: the documents of the block.
            seed: seed of the block.
            example_rows: rows of ``dataset``, whose arrays have the lengths that these need.
        """
        return self.dataset(split, seed)

    def stream_obstacle(self) -> str | None:
        """Return why the objective cannot read a stream, or ``None`` if it can."""
        if self.stateful:
            return f"rows of {self.name} continue in the next step, and a stream shuffles them"
        return None
