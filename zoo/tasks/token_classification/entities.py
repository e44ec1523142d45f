"""Labelled spans from the probabilities of tokens."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zoo.metrics.entities import ONE_TYPE, OUTSIDE
from zoo.tasks.token_classification.data import marks_spans, repair_iob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Aggregate = Literal["none", "simple", "first", "average", "max"]
AGGREGATES: tuple[Aggregate, ...] = ("none", "simple", "first", "average", "max")


class TokenProbs(NamedTuple):
    """Probabilities of the labels of a token or a word."""

    probs: "Floats"  # Probability of each label, (labels,).
    start: int  # First character.
    end: int  # Character after the last one.
    continues: bool = False  # Whether the token continues the word of the one before it.


class Labelled(NamedTuple):
    """A token or a word with its most likely label."""

    label: str
    score: float  # Probability of the label.
    start: int  # First character.
    end: int  # Character after the last one.


def entities(
    tokens: Sequence[TokenProbs], labels: Sequence[str], text: str, aggregate: Aggregate
) -> list[dict[str, Any]]:
    """Return the labelled spans of a text from its tokens, without special ones.

    As in the token-classification pipeline of transformers
    (``pipelines/token_classification.py``). Labels that begin with ``B-`` start a span, others
    continue a span of the same type (Ramshaw and Marcus 1995, arXiv:cmp-lg/9505040).

    ``simple`` labels tokens. The other ways label words: by the ``first`` of their tokens, by the
    ``average`` of their probabilities, or by the token with the highest one (``max``).

    A span has ``label`` (the type, without ``B-`` or ``I-``), ``score`` (the mean over its tokens
    or words), ``text``, ``start`` and ``end``.
    """
    units = tokens if aggregate == "simple" else _words(tokens, aggregate)
    labelled = [
        Labelled(labels[int(unit.probs.argmax())], float(unit.probs.max()), unit.start, unit.end)
        for unit in units
    ]
    return labelled_spans(labelled, text, labels)


def labelled_spans(
    labelled: Sequence[Labelled], text: str, labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the spans of labelled tokens or words; ``labels`` are all of the model.

    Labels of the schemes of ``SCHEMES``, and labels without types, are read as those of IOB2.
    """
    if marks_spans(labels):
        names = repair_iob([token.label for token in labelled])
        typed = [name if "-" in name or name == OUTSIDE else f"{name}-{ONE_TYPE}" for name in names]
        labelled = [token._replace(label=name) for token, name in zip(labelled, typed, strict=True)]
    spans = []
    for group in _groups(labelled):
        label = group[0].label.split("-", 1)[-1]
        start = group[0].start
        end = group[-1].end
        if label != OUTSIDE:
            score = sum(token.score for token in group) / len(group)
            spans.append(
                {
                    "label": label,
                    "score": score,
                    "text": text[start:end],
                    "start": start,
                    "end": end,
                }
            )
    return spans


def _words(tokens: Sequence[TokenProbs], aggregate: Aggregate) -> list[TokenProbs]:
    """Return words, with the probabilities of their tokens aggregated."""
    words: list[list[TokenProbs]] = []
    for token in tokens:
        if words and token.continues:
            words[-1].append(token)
        else:
            words.append([token])
    merged = []
    for word in words:
        if aggregate == "first":
            probs = word[0].probs
        elif aggregate == "max":
            probs = max(word, key=lambda token: float(token.probs.max())).probs
        else:
            probs = sum((token.probs for token in word[1:]), word[0].probs) / len(word)
        merged.append(TokenProbs(probs, word[0].start, word[-1].end))
    return merged


def _groups(labelled: Sequence[Labelled]) -> Iterator[list[Labelled]]:
    """Yield runs of adjacent tokens or words of one type."""
    group: list[Labelled] = []
    for token in labelled:
        begins = token.label.startswith("B-")
        if group and (begins or _type(token.label) != _type(group[-1].label)):
            yield group
            group = []
        group.append(token)
    if group:
        yield group


def _type(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label
