"""Heads that families of every kind have. A family adds what the Hub calls them."""

from dataclasses import replace
from typing import Any

from zoo.families.base import Head

# Hub classes are called by what their names end with
_USUAL = {
    "none": Head(
        ("Model",),
        {"last_hidden_state": "batch tokens hidden_size"},
        ("embed", "features"),
        "a vector for each token",
    ),
    "sequence-classification": Head(
        ("ForSequenceClassification",),
        {"logits": "batch labels"},
        ("classify", "features"),
        "classes of a text or a pair, or a number",
    ),
    "token-classification": Head(
        ("ForTokenClassification",),
        {"logits": "batch tokens labels"},
        ("classify", "features"),
        "classes of tokens",
    ),
    "question-answering": Head(
        ("ForQuestionAnswering",),
        {"start_logits": "batch tokens", "end_logits": "batch tokens"},
        ("features",),
        "where the answer starts and ends",
    ),
}


def standard_head(kind: str, *names: str, **changes: Any) -> Head:
    """Return a head that is as in other families.

    Args:
        kind: ``none``, ``sequence-classification``, ``token-classification`` or
            ``question-answering``.
        *names: what the names of the Hub's classes begin with, see ``Head``.
        **changes: fields that are not as in other families.
    """
    head = _USUAL[kind]
    return replace(head, architectures=tuple(n + head.architectures[0] for n in names), **changes)
