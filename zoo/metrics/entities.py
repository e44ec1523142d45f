"""Entities that labels of words mark, and their precision, recall and F1."""

from collections import Counter
from collections.abc import Iterable, Sequence

Entity = tuple[str, int, int]  # type, first word, last word
OUTSIDE = "O"
ONE_TYPE = "_"  # of labels that have none, as in seqeval
# Prefixes by the position of a word in its entity; ``M`` is ``I`` in the scheme BMES.
BEGIN = ("B",)
SINGLE = ("S", "U")
LAST = ("E", "L")
INSIDE = ("I", "M")
PREFIXES = (*BEGIN, *SINGLE, *LAST, *INSIDE)


def split_tag(name: str) -> tuple[str, str]:
    """Return prefix and type of a label: ``B-X``, ``B`` without a type, or ``X-B``."""
    # The prefix is empty if the label has none
    if name == OUTSIDE:
        return OUTSIDE, ""
    prefix, _, entity_type = name.partition("-")
    if prefix in PREFIXES:
        return prefix, entity_type or ONE_TYPE
    entity_type, _, prefix = name.rpartition("-")
    if entity_type and prefix in PREFIXES:
        return prefix, entity_type
    return "", name


def entities(labels: Sequence[str]) -> set[Entity]:
    """Return the entities of a sentence."""
    # As conlleval, the script of the shared task of CoNLL 2000, has it: an entity begins at ``B-``
    # or a word that is an entity, and also at any other prefix after another type, ``O`` or the end
    # of an entity
    spans: set[Entity] = set()
    entity_type = ""
    first = 0
    ended = False
    for position, name in enumerate([*labels, OUTSIDE]):  # which ends an entity at the last word
        prefix, current = split_tag(name)
        begins = ended or prefix in (*BEGIN, *SINGLE) or current != entity_type
        if entity_type and begins:
            spans.add((entity_type, first, position - 1))
            entity_type = ""
        if prefix != OUTSIDE and not entity_type:
            entity_type = current
            first = position
        ended = prefix in (*SINGLE, *LAST)
    return spans


def entity_counts(actual: Sequence[str], predicted: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of correct, predicted and actual entities of a sentence, by type."""
    true = entities(actual)
    guessed = entities(predicted)
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
