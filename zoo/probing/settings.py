"""What probes are and how they are trained. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

ProbeKind = Literal["linear", "mlp"]
PROBES: tuple[ProbeKind, ...] = ("linear", "mlp")
Pooling = Literal["mean", "first", "last", "max"]
POOLINGS: tuple[Pooling, ...] = ("mean", "first", "last", "max")


@dataclass(frozen=True)
class ProbeRecipe:
    """The classifier on a layer, and its training.

    The defaults follow Hewitt and Liang 2019 (arXiv:1909.03368), which Voita and Titov 2020
    (arXiv:2003.12298) share: Adam, a learning rate that halves after each epoch without a lower
    loss of held-out texts, and an end after four of these in a row.
    """

    probe: ProbeKind = "linear"
    hidden_size: int = 1000  # Width of the hidden layer of ``mlp``.
    l2: float = 0.0  # The loss has l2 / 2 times the sum of squared weights, without biases.
    epochs: int = 50  # The largest number of epochs.
    learning_rate: float = 1e-3
    batch_size: int = 512  # Examples: words, texts or edges.
    # Share of the training texts that decides when to stop. Without one, the training loss does.
    validation_fraction: float = 0.1


@dataclass(frozen=True)
class Measurements:
    """What is measured in addition to how well probes predict the labels."""

    control: bool = False  # Selectivity: the same with the random labels of a control task.
    mdl: bool = False  # Minimum description length, by online coding.
