"""Entities that labels of words mark, and their precision, recall and F1."""

from collections import Counter
from collections.abc import Iterable, Sequence

Entity = tuple[str, int, int]  # type, first word, last word


def entities(labels: Sequence[str]) -> set[Entity]:
    """Return the entities of a sentence."""
    # As conlleval, the script of the shared task of CoNLL 2000, has it for ``B-`` and ``I-``: an
    # entity begins at ``B-``, and also at ``I-`` after another type or ``O``
    spans: set[Entity] = set()
    kind, first = "", 0
    for position, name in enumerate([*labels, "O"]):  # which ends an entity at the last word
        prefix, _, current = name.partition("-")
        if kind and (prefix in ("B", "O") or current != kind):
            spans.add((kind, first, position - 1))
            kind = ""
        if prefix != "O" and not kind:
            kind, first = current or "_", position
    return spans


def entity_counts(actual: Sequence[str], predicted: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of correct, predicted and actual entities of a sentence, by type."""
    true, guessed = entities(actual), entities(predicted)
    counts = [Counter(kind for kind, _, _ in spans) for spans in (true & guessed, guessed, true)]
    kinds = {kind for count in counts for kind in count}
    return {kind: tuple(count[kind] for count in counts) for kind in kinds}


def entity_scores(counts: Iterable[Sequence[int]]) -> dict[str, float]:
    """Return precision, recall and F1 from rows of correct, predicted and actual entities."""
    # a row of zeros, so that there are three columns without any entity
    correct, predicted, actual = (sum(column) for column in zip(*counts, (0, 0, 0), strict=False))
    return {
        "precision": correct / predicted if predicted else 0.0,
        "recall": correct / actual if actual else 0.0,
        "f1": 2 * correct / (predicted + actual) if predicted + actual else 0.0,
    }
