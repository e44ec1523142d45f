"""The classifier on frozen vectors, its training, and its scores."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import UsageError
from zoo.metrics.classification import ClassCounts, f1_macro
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.overrides import override
from zoo.probing.settings import ProbeRecipe

if TYPE_CHECKING:
    from zoo.probing.layers import Floats

Indices = NDArray[np.int64]
PATIENCE = 4  # Epochs in a row without a lower loss, after which training ends.
DECAY = 0.5  # What the learning rate is multiplied by after each of them.
EXAMPLES_TOGETHER = 4096  # Examples that are scored at once.
# Vectors of up to this size are in memory while a probe is trained; more are read from the file.
MAX_BYTES_IN_MEMORY = 1 << 29


class ProbeVectors:
    """The vectors of examples in one layer, or in several that a probe mixes.

    Each number is standardized: its mean over the training examples is 0 and its standard deviation
    1. Layers have scales that differ by orders of magnitude, which one learning rate would not
    suit, and the shares of a mix would depend on them.

    Args:
        arrays: vectors of each layer, (vectors, width).
        rows: vectors of each example, (examples, vectors of one), which are concatenated.
        train: indices of the training examples.
        device: where probes are trained.
    """

    def __init__(
        self,
        arrays: "Sequence[Floats]",
        rows: Indices,
        train: Indices,
        device: torch.device | str = "cpu",
    ) -> None:
        self._arrays = arrays
        self._rows = rows
        self._device = torch.device(device)
        self.layers = len(arrays)
        self.width = arrays[0].shape[1] * rows.shape[1]
        mean = np.zeros((self.layers, self.width))
        for part in _parts(train):
            mean += self._read(part).sum(axis=0, dtype=np.float64)
        mean /= len(train)
        variance = np.zeros_like(mean)
        for part in _parts(train):
            variance += np.square(self._read(part) - mean).sum(axis=0)
        deviation = np.sqrt(variance / len(train))
        # A number that never differs says nothing, and becomes 0.
        scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        self._mean = torch.tensor(mean, dtype=torch.float32, device=self._device)
        self._scale = torch.tensor(scale, dtype=torch.float32, device=self._device)
        self._in_memory: Tensor | None = None
        if len(rows) * mean.size * np.dtype(np.float32).itemsize <= MAX_BYTES_IN_MEMORY:
            self._in_memory = self._standardize(np.arange(len(rows)))

    def gather(self, examples: Indices) -> Tensor:
        """Return the standardized vectors of examples, (examples, layers, width), float32."""
        if self._in_memory is not None:
            return self._in_memory[torch.from_numpy(examples)]
        return self._standardize(examples)

    def _standardize(self, examples: Indices) -> Tensor:
        vectors = torch.from_numpy(self._read(examples)).to(self._device)
        return vectors.sub_(self._mean).mul_(self._scale)

    def _read(self, examples: Indices) -> "Floats":
        rows = self._rows[examples]
        layers = [array[rows].reshape(len(examples), -1) for array in self._arrays]
        return np.stack(layers, axis=1)


class Probe(nn.Module):
    """A linear classifier, or one with a hidden layer, on a layer or a learned mix of layers.

    Args:
        layers: number of layers; several are mixed as in equation 1 of Peters et al. 2018, which
            Tenney et al. 2019 (arXiv:1905.05950, section 3) train with their probes.
        width: number of values of an example in a layer.
        classes: number of classes.
        recipe: the kind of the probe.
    """

    def __init__(self, layers: int, width: int, classes: int, recipe: ProbeRecipe) -> None:
        super().__init__()
        self.mix = ScalarMix(layers) if layers > 1 else None
        if recipe.probe == "linear":
            self.classifier = nn.Sequential(nn.Linear(width, classes))
        else:
            self.classifier = nn.Sequential(
                nn.Linear(width, recipe.hidden_size),
                nn.ReLU(),
                nn.Linear(recipe.hidden_size, classes),
            )

    @override
    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits, (examples, classes), for vectors, (examples, layers, width)."""
        mixed = vectors[:, 0] if self.mix is None else self.mix(vectors.unbind(1))
        logits: Tensor = self.classifier(mixed)
        return logits

    def squared_weights(self) -> Tensor:
        """Return the sum of the squared weights of the classifier."""
        total = torch.zeros((), device=next(self.parameters()).device)
        for name, parameter in self.classifier.named_parameters():
            if name.endswith("weight"):
                total = total + parameter.square().sum()
        return total

    def shares(self) -> list[float]:
        """Return the share of each layer in the mix; empty without one."""
        if self.mix is None or self.mix.weights is None:
            return []
        return self.mix.weights.detach().double().softmax(-1).tolist()


@dataclass(frozen=True)
class ProbeScores:
    """How well a probe predicts some examples."""

    accuracy: float
    f1_macro: float
    bits: float  # Sum of -log2 of the probabilities of the labels.
    examples: int


def train_probe(
    vectors: ProbeVectors,
    labels: Indices,
    *,
    train: Indices,
    validation: Indices,
    classes: int,
    recipe: ProbeRecipe,
    seed: int,
) -> Probe:
    """Train a probe, and return it as it was at the lowest loss of the held-out examples.

    Args:
        vectors: vectors of all examples.
        labels: class of each example, (examples,).
        train: indices of the examples to train on.
        validation: indices of those that decide when to stop; if empty, the training loss does.
        classes: number of classes.
        recipe: the kind of the probe, and its training.
        seed: seed of the initial weights and of the order of examples.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = Probe(vectors.layers, vectors.width, classes, recipe)
    targets = torch.from_numpy(labels)
    device = vectors.gather(train[:1]).device
    probe.to(device)
    optimizer = torch.optim.Adam(probe.parameters(), lr=recipe.learning_rate)
    lowest_loss = math.inf
    best_weights: dict[str, Any] = {}
    epochs_without_progress = 0
    for _ in range(recipe.epochs):
        order = train[torch.randperm(len(train), generator=generator).numpy()]
        for batch in _parts(order, recipe.batch_size):
            logits = probe(vectors.gather(batch))
            loss = F.cross_entropy(logits, targets[batch].to(device))
            if recipe.l2:
                loss = loss + recipe.l2 / 2 * probe.squared_weights()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        monitored_loss = _monitored_loss(probe, vectors, labels, train, validation, recipe)
        if monitored_loss < lowest_loss:
            lowest_loss = monitored_loss
            best_weights = copy.deepcopy(probe.state_dict())
            epochs_without_progress = 0
            continue
        epochs_without_progress += 1
        if epochs_without_progress == PATIENCE:
            break
        for group in optimizer.param_groups:
            group["lr"] *= DECAY
    if not best_weights:
        raise UsageError("the loss of a probe is not a finite number", "lower --learning-rate")
    probe.load_state_dict(best_weights)
    return probe


def _monitored_loss(
    probe: Probe,
    vectors: ProbeVectors,
    labels: Indices,
    train: Indices,
    validation: Indices,
    recipe: ProbeRecipe,
) -> float:
    """Return the loss of the held-out examples, or the objective on the training examples."""
    if len(validation):
        return score_probe(probe, vectors, labels, validation).bits / len(validation)
    mean_loss = score_probe(probe, vectors, labels, train).bits / len(train) * math.log(2)
    with torch.no_grad():
        return mean_loss + recipe.l2 / 2 * float(probe.squared_weights())


def score_probe(
    probe: Probe, vectors: ProbeVectors, labels: Indices, examples: Indices
) -> ProbeScores:
    """Return how well a probe predicts examples, whose indices are given."""
    predictions = []
    bits = 0.0
    classes = 0
    for part in _parts(examples):
        with torch.no_grad():
            # The sum is in double precision: it is over as many terms as there are examples.
            log_probabilities = probe(vectors.gather(part)).double().log_softmax(-1).cpu()
        classes = log_probabilities.shape[-1]
        targets = torch.from_numpy(labels[part])
        bits -= float(log_probabilities.gather(1, targets[:, None]).sum()) / math.log(2)
        predictions.append(log_probabilities.argmax(-1).numpy())
    guesses = np.concatenate(predictions)
    counts = ClassCounts.of(labels[examples], guesses, classes)
    accuracy = float(counts.hits.sum() / len(examples))
    return ProbeScores(accuracy, float(f1_macro(counts)), bits, len(examples))


def _parts(examples: Indices, size: int = EXAMPLES_TOGETHER) -> Iterator[Indices]:
    for start in range(0, len(examples), size):
        yield examples[start : start + size]
