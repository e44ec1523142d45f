"""The examples of an evaluation of prompts: which rows, in which orders, and with which labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zoo.tasks.prompt.shot_labels import ShotLabels
from zoo.tasks.prompt.shots import Shot
from zoo.tasks.prompt.varied import Factor


@dataclass(frozen=True)
class Demonstrations:
    """Examples that are varied.

    Attributes:
        selections: the rows of each selection with their true labels; one without rows if there
            are no examples.
        orders: the orders of each selection.
        labels: where labels come from.
        seed: the seed of the first selection; others follow.
    """

    selections: Sequence[Sequence[Shot]]
    orders: Sequence[Sequence[tuple[int, ...]]]
    labels: Sequence[ShotLabels]
    seed: int

    def examples(
        self, words: Mapping[str, str], labels: int, selection: int, order: int
    ) -> list[Shot]:
        """Return the examples of a prompt in their order, with the labels that they have there.

        Args:
            words: label -> word.
            labels: index in ``labels``.
            selection: index in ``selections``.
            order: index in the orders of the selection.
        """
        shots = self.labels[labels].relabel(
            self.selections[selection], words, self.seed + selection
        )
        if not shots:
            return []
        return [shots[number] for number in self.orders[selection][order]]

    def factors(self) -> list[Factor]:
        """Return labels, selections and orders as factors."""
        without_examples = []
        for number, labels in enumerate(self.labels):
            if labels.source == "none":
                without_examples.append(number)
        idle_at = {"shot labels": without_examples}
        seeds = tuple(range(self.seed, self.seed + len(self.selections)))
        orders = tuple(range(len(self.orders[0])))
        return [
            Factor("shot labels", tuple(labels.name for labels in self.labels)),
            Factor("seed", seeds, is_drawn=True, idle_at=idle_at),
            Factor("order", orders, within="seed", is_drawn=True, idle_at=idle_at),
        ]

    def texts(self) -> set[tuple[str, str | None]]:
        """Return the texts of all examples."""
        texts = set()
        for selection in self.selections:
            for shot in selection:
                texts.add((shot.text, shot.pair))
        return texts
