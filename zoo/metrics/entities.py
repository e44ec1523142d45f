"""Entities that labels of words mark, and their precision, recall and F1."""

from collections import Counter
from collections.abc import Iterable, Sequence

Entity = tuple[str, int, int]  # type, first word, last word
OUTSIDE = "O"
ONE_TYPE = "_"  # the type of labels that have none, as in seqeval
# Prefixes by the position of a word in its entity; ``M`` is ``I`` in the scheme BMES.
BEGIN = ("B",)
SINGLE = ("S", "U")
LAST = ("E", "L")
INSIDE = ("I", "M")
PREFIXES = (*BEGIN, *SINGLE, *LAST, *INSIDE)


def split_tag(name: str) -> tuple[str, str]:
    """Return prefix and type of a label: ``B-X``, ``B`` without a type, or ``X-B``.

    The prefix is empty if the label has none.
    """
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
    """Return the entities of a sentence.

    As in conlleval, the script of the shared task of CoNLL 2000, an entity begins at ``B-`` or a
    word that is an entity, and also at any other prefix after another type, ``O`` or the end of an
    entity.
    """
    spans: set[Entity] = set()
    entity_type = ""
    first_word = 0
    has_ended = False
    # A last label ``O`` ends an entity at the last word.
    for position, name in enumerate([*labels, OUTSIDE]):
        prefix, current_type = split_tag(name)
        begins = has_ended or prefix in (*BEGIN, *SINGLE) or current_type != entity_type
        if entity_type and begins:
            spans.add((entity_type, first_word, position - 1))
            entity_type = ""
        if prefix != OUTSIDE and not entity_type:
            entity_type = current_type
            first_word = position
        has_ended = prefix in (*SINGLE, *LAST)
    return spans


def entity_counts(actual: Sequence[str], predicted: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of correct, predicted and actual entities of a sentence, by type."""
    actual_spans = entities(actual)
    predicted_spans = entities(predicted)
    correct_counts = _count_types(actual_spans & predicted_spans)
    predicted_counts = _count_types(predicted_spans)
    actual_counts = _count_types(actual_spans)
    counts: dict[str, tuple[int, ...]] = {}
    for name in predicted_counts | actual_counts:
        counts[name] = (correct_counts[name], predicted_counts[name], actual_counts[name])
    return counts


def _count_types(spans: set[Entity]) -> Counter[str]:
    return Counter(entity_type for entity_type, _, _ in spans)


def entity_scores(counts: Iterable[Sequence[int]]) -> dict[str, float]:
    """Return precision, recall and F1 from rows of correct, predicted and actual entities."""
    correct = 0
    predicted = 0
    actual = 0
    for row_correct, row_predicted, row_actual in counts:
        correct += row_correct
        predicted += row_predicted
        actual += row_actual
    return {
        "precision": _quotient(correct, predicted),
        "recall": _quotient(correct, actual),
        "f1": _quotient(2 * correct, predicted + actual),
    }


def _quotient(dividend: int, divisor: int) -> float:
    """Return a quotient, which is 0 where nothing was counted."""
    return dividend / divisor if divisor else 0.0
