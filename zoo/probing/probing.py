"""Probes on all layers of a model: their data, their scores, and the result."""

import logging
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.readers.labelled import hold_out, sort_labels
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.finetuning.labels import label_index
from zoo.io.progress import progress
from zoo.io.scratch import scratch_directory
from zoo.probing.classifier import Indices, ProbeVectors, score_probe, train_probe
from zoo.probing.control import ControlTask
from zoo.probing.layers import LayerReader, LayerVectors, check_model, example_rows
from zoo.probing.online_code import online_code
from zoo.probing.settings import Measurements, Pooling, ProbeRecipe
from zoo.probing.tasks.base import ProbeColumns, ProbedText, ProbeTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.checkpoint import Checkpoint

LOG = logging.getLogger("zoo")
MIX = "learned mix"  # Name of the row of probes that read all layers.


@dataclass(frozen=True)
class ProbeData:
    """The texts that probes are trained and evaluated on, and their classes.

    Attributes:
        train: texts to train on.
        validation: texts that are held out of the training data, to decide when to stop.
        evaluation: texts to evaluate.
        labels: the classes, sorted.
    """

    train: list[ProbedText]
    validation: list[ProbedText]
    evaluation: list[ProbedText]
    labels: tuple[str, ...]

    @property
    def texts(self) -> list[ProbedText]:
        """All texts, those to train on first."""
        return [*self.train, *self.validation, *self.evaluation]

    def majority_accuracy(self) -> float:
        """Return the accuracy of always predicting the most frequent label."""
        train_counts = Counter(_label_names([*self.train, *self.validation]))
        (label, _), *_ = train_counts.most_common(1)
        names = _label_names(self.evaluation)
        return names.count(label) / len(names)


@dataclass(frozen=True)
class LayerResult:
    """The scores of the probes on a layer, one of each seed.

    Attributes:
        layer: number of the layer; ``None`` for the learned mix of all.
        name: name of the layer.
        values: metric -> its value for each seed.
        shares: mean share of each layer in the learned mix; empty for a single layer.
    """

    layer: int | None
    name: str
    values: dict[str, list[float]]
    shares: list[float] = field(default_factory=list)

    def mean(self, metric: str) -> float:
        """Return the mean of a metric over the seeds."""
        return statistics.fmean(self.values[metric])

    def deviation(self, metric: str) -> float:
        """Return the standard deviation of a metric over the seeds; 0 for one seed."""
        values = self.values[metric]
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return all values."""
        value: dict[str, Any] = {"layer": self.layer, "name": self.name}
        for metric, values in self.values.items():
            deviation = self.deviation(metric)
            value[metric] = {"mean": self.mean(metric), "deviation": deviation, "seeds": values}
        if self.shares:
            value["shares"] = self.shares
        return value


@dataclass(frozen=True)
class ModelResult:
    """The scores of the probes on the layers of a model.

    Attributes:
        model: reference of the model.
        family: its family.
        head: its head.
        layers: the layers in order, and then the learned mix.
        passes: number of forward passes.
        left_out: number of examples without a vector, whose words are cut with the end of a text.
    """

    model: str
    family: str
    head: str
    layers: list[LayerResult]
    passes: int
    left_out: int

    def to_json(self) -> dict[str, Any]:
        """Return all values."""
        return {
            "model": self.model,
            "family": self.family,
            "head": self.head,
            "forward_passes": self.passes,
            "left_out": self.left_out,
            "layers": [layer.to_json() for layer in self.layers],
        }


def read_data(
    task: ProbeTask,
    train: Sequence[str],
    evaluation: Sequence[str],
    columns: ProbeColumns,
    recipe: ProbeRecipe,
    *,
    skip_invalid: bool = False,
) -> ProbeData:
    """Return the texts of files; see ``zoo.api.probing.probe``."""
    with RowProblems(skip=skip_invalid) as problems:
        train_texts = task.read(train, columns, problems)
        labels = sort_labels(_label_names(train_texts))
        if not labels:
            raise UsageError("the training data has no labels", "give --train with labelled texts")
        if len(labels) < 2:
            raise UsageError(
                f"all samples of the training data have the label {labels[0]!r}",
                "give data with two labels or more",
            )
        evaluation_texts = task.read(evaluation, columns, problems)
        indices = {label: index for index, label in enumerate(labels)}

        def require_labels(text: ProbedText) -> None:
            for example in text.examples:
                label_index(example.label, indices, example.location)

        valid_texts = list(problems.valid(evaluation_texts, require_labels))
    if problems.count:
        LOG.warning("warning: rows that cannot be used are left out: %s", f"{problems.count:,}")
    _require_equal_spans([*train_texts, *valid_texts])
    if not _label_names(valid_texts):
        raise UsageError("no sample to evaluate is left", "give --eval with labels of --train")
    held_out: list[ProbedText] = []
    if recipe.validation_fraction:
        try:
            train_texts, held_out = hold_out(train_texts, recipe.validation_fraction)
        except UsageError as error:
            raise UsageError(
                f"the {len(train_texts):,} texts to train on cannot be split, to hold some out",
                "give others, or --validation-fraction 0",
            ) from error
    return ProbeData(train_texts, held_out, valid_texts, labels)


def probe_models(
    models: "Sequence[tuple[str, Checkpoint]]",
    data: ProbeData,
    pooling: Pooling,
    recipe: ProbeRecipe,
    measurements: Measurements,
    *,
    layers: Sequence[int] | None,
    seeds: int,
    max_tokens: int | None,
    device: str | None,
) -> list[ModelResult]:
    """Train probes on several models, each with its name; see ``zoo.api.probing.probe``.

    All models are checked before the first one runs, since probing takes long.
    """
    for _, checkpoint in models:
        check_model(checkpoint, layers, max_tokens)
    results = []
    for name, checkpoint in models:
        result = probe_model(
            checkpoint,
            data,
            pooling,
            recipe,
            measurements,
            name=name,
            layers=layers,
            seeds=seeds,
            max_tokens=max_tokens,
            device=device,
        )
        results.append(result)
    return results


def probe_model(
    checkpoint: "Checkpoint",
    data: ProbeData,
    pooling: Pooling,
    recipe: ProbeRecipe,
    measurements: Measurements,
    *,
    name: str,
    layers: Sequence[int] | None,
    seeds: int,
    max_tokens: int | None,
    device: str | None,
) -> ModelResult:
    """Train probes on all layers of a model; see ``zoo.api.probing.probe``."""
    from zoo.checkpoint import load_text_tokenizer
    from zoo.inference.torch_session import TorchSession

    session = TorchSession(checkpoint, device=device)
    tokenizer = load_text_tokenizer(checkpoint)
    reader = LayerReader(checkpoint, session, tokenizer, layers=layers, max_tokens=max_tokens)
    with scratch_directory(is_only_folder=False) as folder:
        vectors = reader.read(data.texts, pooling, folder)
        experiment = Experiment(data, vectors, recipe, measurements, seeds, session.device)
        if experiment.left_out:
            LOG.warning(
                "warning: %s: %s examples lie behind the cut end of their text, and are left out",
                name,
                f"{experiment.left_out:,}",
            )
        results = experiment.run()
    return ModelResult(
        name,
        checkpoint.family.name,
        checkpoint.head_name,
        results,
        vectors.passes,
        experiment.left_out,
    )


class Experiment:
    """Probes of one model: a row of scores for each layer, and one for the mix of all.

    Args:
        data: the texts and classes.
        vectors: the vectors of all layers.
        recipe: the kind of the probes, and their training.
        measurements: what is measured.
        seeds: number of probes of each layer.
        device: where they are trained.
    """

    def __init__(
        self,
        data: ProbeData,
        vectors: LayerVectors,
        recipe: ProbeRecipe,
        measurements: Measurements,
        seeds: int,
        device: str,
    ) -> None:
        self.data = data
        self.vectors = vectors
        self.recipe = recipe
        self.measurements = measurements
        self.seeds = seeds
        self.device = device
        texts = data.texts
        self.rows, text_numbers, is_complete = example_rows(texts, vectors.has_tokens)
        self.text_numbers: Indices = text_numbers
        self.left_out = int(np.count_nonzero(~is_complete))
        indices = {label: index for index, label in enumerate(data.labels)}
        labels = []
        self.control_types = []
        examples = [example for text in texts for example in text.examples]
        for example, has_vectors in zip(examples, is_complete.tolist(), strict=True):
            if has_vectors:
                labels.append(label_index(example.label, indices, example.location))
                self.control_types.append(example.control_type)
        self.labels: Indices = np.array(labels, np.int64)
        validation_start = len(data.train)
        evaluation_start = validation_start + len(data.validation)
        self.train: Indices = np.flatnonzero(text_numbers < validation_start)
        self.validation: Indices = np.flatnonzero(
            (text_numbers >= validation_start) & (text_numbers < evaluation_start)
        )
        self.evaluation: Indices = np.flatnonzero(text_numbers >= evaluation_start)
        if not len(self.train) or not len(self.evaluation):
            raise UsageError("no word of the texts is left", "raise --max-seq-len")

    def run(self) -> list[LayerResult]:
        """Train and score the probes of all layers, and then those of their learned mix."""
        inputs: list[tuple[int | None, str, list[int]]] = []
        for position, name in enumerate(self.vectors.names):
            inputs.append((self.vectors.numbers[position], name, [position]))
        mixed = self._mixed_layers()
        if mixed:
            inputs.append((None, MIX, mixed))
        results = []
        total = self.seeds * len(inputs)
        with progress("training probes", total, unit="probes") as advance:
            for number, name, positions in inputs:
                results.append(self._probe_layer(number, name, positions, advance))
        return results

    def _mixed_layers(self) -> list[int]:
        """Return the layers that are mixed: all of one width; none of a model with one layer.

        A mix that the model has itself is of the same layers, and is left out.
        """
        width = self.vectors.arrays[-1].shape[1]
        positions = []
        for position, array in enumerate(self.vectors.arrays):
            if array.shape[1] == width and self.vectors.names[position] != "model's mix":
                positions.append(position)
        return positions if len(positions) > 1 else []

    def _probe_layer(
        self,
        number: int | None,
        name: str,
        positions: Sequence[int],
        advance: "Callable[[int], None]",
    ) -> LayerResult:
        arrays = [self.vectors.arrays[position] for position in positions]
        vectors = ProbeVectors(arrays, self.rows, self.train, self.device)
        values: dict[str, list[float]] = {}
        shares = []
        for seed in range(self.seeds):
            scores, seed_shares = self._score_seed(vectors, seed)
            shares.append(seed_shares)
            for metric, value in scores.items():
                values.setdefault(metric, []).append(value)
            advance(1)
        mean_shares = [statistics.fmean(layer) for layer in zip(*shares, strict=True)]
        return LayerResult(number, name, values, mean_shares)

    def _score_seed(
        self, vectors: ProbeVectors, seed: int
    ) -> tuple[Mapping[str, float], list[float]]:
        """Return the metrics of the probes of a seed, and the shares of the layers in its mix."""
        scores, shares = self._score_labels(vectors, self.labels, seed)
        if not self.measurements.control:
            return scores, shares
        training_labels = self.labels[np.concatenate([self.train, self.validation])]
        control = ControlTask(training_labels, len(self.data.labels), seed)
        control_labels = control.labels(self.control_types)
        control_scores, _ = self._score_labels(vectors, control_labels, seed)
        for metric in ("accuracy", "codelength", "compression"):
            if metric in control_scores:
                scores[f"control_{metric}"] = control_scores[metric]
        scores["selectivity"] = scores["accuracy"] - control_scores["accuracy"]
        return scores, shares

    def _score_labels(
        self, vectors: ProbeVectors, labels: Indices, seed: int
    ) -> tuple[dict[str, float], list[float]]:
        """Return the metrics of a probe for some labels of all examples, and its shares."""
        classes = len(self.data.labels)
        probe = train_probe(
            vectors,
            labels,
            train=self.train,
            validation=self.validation,
            classes=classes,
            recipe=self.recipe,
            seed=seed,
        )
        scores = score_probe(probe, vectors, labels, self.evaluation)
        metrics = {
            "accuracy": scores.accuracy,
            "f1_macro": scores.f1_macro,
            "loss": scores.bits / scores.examples,
        }
        if self.measurements.mdl:
            code = online_code(
                vectors,
                labels,
                train=self.train,
                text_numbers=self.text_numbers,
                validation=self.validation,
                classes=classes,
                recipe=self.recipe,
                seed=seed,
            )
            metrics["codelength"] = code.bits
            metrics["compression"] = code.compression
        return metrics, probe.shares()


def _label_names(texts: Sequence[ProbedText]) -> list[str]:
    return [example.label for text in texts for example in text.examples]


def _require_equal_spans(texts: Sequence[ProbedText]) -> None:
    """Check that all examples are of one span, or all of two."""
    first_count = None
    for text in texts:
        for example in text.examples:
            if first_count is None:
                first_count = len(example.spans)
            if len(example.spans) != first_count:
                raise UsageError(
                    f"{example.location} has {len(example.spans)} spans, and the first example has "
                    f"{first_count}",
                    "give all of them the same number of spans",
                )
