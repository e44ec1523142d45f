"""Heads of families of every kind, to which a family adds the names of the Hub's classes."""

from dataclasses import replace
from typing import Any

from zoo.families.base import Head

# the architectures are the ends of the Hub's class names
_STANDARD = {
    "none": Head(
        ("Model",),
        {"last_hidden_state": "batch tokens hidden_size"},
        ("embed", "similarity", "features"),
        "hidden states",
    ),
    "sequence-classification": Head(
        ("ForSequenceClassification",),
        {"logits": "batch labels"},
        ("classify", "features"),
        "classification or regression of texts and pairs",
    ),
    "token-classification": Head(
        ("ForTokenClassification",),
        {"logits": "batch tokens labels"},
        ("classify", "features"),
        "classification of tokens",
    ),
    "question-answering": Head(
        ("ForQuestionAnswering",),
        {"start_logits": "batch tokens", "end_logits": "batch tokens"},
        ("answer", "features"),
        "start and end of the answer",
    ),
}


def with_head(family: str, head: str) -> str:
    """Return how messages call a family with a head, which may be the bare backbone."""
    if head == "none":
        return f"{family} without a head"
    return f"{family} with head {head}"


def standard_head(kind: str, *names: str, **changes: Any) -> Head:
    """Return a head with the inputs, outputs and tasks that it has in most families.

    Args:
        kind: ``none``, ``sequence-classification``, ``token-classification`` or
            ``question-answering``.
        *names: prefixes of the Hub's class names, one for each model type.
        **changes: other fields of ``Head``.
    """
    head = _STANDARD[kind]
    return replace(head, architectures=tuple(n + head.architectures[0] for n in names), **changes)
