"""Labels of the examples before a prompt: true, random, permuted or wrong ones, or no examples.

Min et al. 2022 (arXiv:2202.12837, section 4) compare true with random labels and with a share of
wrong ones. An example keeps its text and its place, and the text that is classified is never read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.tasks.prompt import SHOT_LABELS
from zoo.tasks.prompt.shots import Shot
from zoo.tasks.prompt.template import word_of

if TYPE_CHECKING:
    from numpy.random import Generator

# Number that tells the random labels of a seed from its selection and orders.
LABEL_STREAM = 1


@dataclass(frozen=True)
class ShotLabels:
    """Where the labels of examples come from.

    Attributes:
        source: ``gold``, ``random`` (uniform over the labels of the task), ``permuted`` (shuffled
            among the examples, so that their numbers stay), ``wrong`` or ``none``, which leaves
            the examples out.
        wrong_share: share of the examples whose label is wrong, for ``wrong``.
    """

    source: str = "gold"
    wrong_share: float = 0.0

    @property
    def name(self) -> str:
        """Name in results, such as ``random`` or ``0.5 wrong``."""
        return f"{self.wrong_share:g} wrong" if self.source == "wrong" else self.source

    def relabel(self, shots: Sequence[Shot], words: Mapping[str, str], seed: int) -> list[Shot]:
        """Return examples with these labels; they only depend on the seed and on the examples.

        Args:
            shots: the examples with their true labels.
            words: label -> word; its labels are those of the task.
            seed: the seed.

        Raises:
            UsageError: an example has a label outside of the task.
        """
        import numpy as np

        for shot in shots:
            word_of(words, shot.label, shot.location)
        if self.source == "none":
            return []
        rng = np.random.default_rng((seed, LABEL_STREAM))
        gold_labels = [shot.label for shot in shots]
        if self.source == "random":
            labels = _uniform_labels(len(shots), sorted(words), rng)
        elif self.source == "permuted":
            labels = [gold_labels[number] for number in rng.permutation(len(shots))]
        elif self.source == "wrong":
            labels = _wrong_labels(gold_labels, sorted(words), self.wrong_share, rng)
        else:
            labels = gold_labels
        return [replace(shot, label=label) for shot, label in zip(shots, labels, strict=True)]


def read_shot_labels(
    sources: Sequence[str], wrong_shares: Sequence[float], shots: int | None
) -> list[ShotLabels]:
    """Return the labels that options name, in their order; true ones if they name none.

    Args:
        sources: values of ``--shot-labels``.
        wrong_shares: values of ``--wrong-labels``.
        shots: number of examples, if there are any.

    Raises:
        UsageError: a value is unknown or repeated, or there are no examples to label.
    """
    if not sources and not wrong_shares:
        return [ShotLabels()]
    if shots is None:
        raise UsageError(
            "--shot-labels and --wrong-labels are for examples", "give --shots N --shots-from FILE"
        )
    for source in sources:
        if source not in SHOT_LABELS:
            raise UsageError(
                f"no labels of examples are called {source!r}", f"they are {', '.join(SHOT_LABELS)}"
            )
    for share in wrong_shares:
        if not 0 < share <= 1:
            raise UsageError(
                f"--wrong-labels is a share of the examples, and {share:g} is none",
                "give a number above 0, up to 1",
            )
        if not round(share * shots):
            raise UsageError(
                f"--wrong-labels {share:g} of --shots {shots} changes no label",
                "give more examples, or a larger share",
            )
    shot_labels = [ShotLabels(source) for source in sources]
    shot_labels += [ShotLabels("wrong", share) for share in wrong_shares]
    for number, labels in enumerate(shot_labels):
        if labels in shot_labels[:number]:
            raise UsageError(
                f"the labels of examples {labels.name!r} are given twice", "leave one out"
            )
    return shot_labels


def _uniform_labels(count: int, labels: Sequence[str], rng: "Generator") -> list[str]:
    return [labels[number] for number in rng.integers(len(labels), size=count)]


def _wrong_labels(
    gold_labels: Sequence[str], labels: Sequence[str], share: float, rng: "Generator"
) -> list[str]:
    """Return labels of which a share, rounded to whole examples, differ from the true ones."""
    if len(labels) < 2:
        raise UsageError(
            f"{gold_labels[0]!r} is the only label, and no other one is wrong",
            "name all labels with --label-words, or leave out --wrong-labels",
        )
    wrong_count = round(share * len(gold_labels))
    changed = list(gold_labels)
    for number in rng.permutation(len(gold_labels))[:wrong_count]:
        other_labels = [label for label in labels if label != gold_labels[number]]
        changed[number] = other_labels[rng.integers(len(other_labels))]
    return changed
