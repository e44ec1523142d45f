"""Heads that families of every kind have. A family adds what the Hub calls them."""

from dataclasses import replace
from typing import Any

from zoo.family import Head

_USUAL = {
    "none": Head(
        (),
        {"last_hidden_state": "batch tokens hidden_size"},
        ("embed", "features"),
        "a vector for each token",
    ),
    "sequence-classification": Head(
        (),
        {"logits": "batch labels"},
        ("classify", "features"),
        "classes of a text or a pair, or a number",
    ),
    "token-classification": Head(
        (), {"logits": "batch tokens labels"}, ("classify", "features"), "classes of tokens"
    ),
    "question-answering": Head(
        (),
        {"start_logits": "batch tokens", "end_logits": "batch tokens"},
        ("features",),
        "where the answer starts and ends",
    ),
}


def usual(kind: str, *architectures: str, **changes: Any) -> Head:
    """Return a head that is as in other families.

    Args:
        kind: ``none``, ``sequence-classification``, ``token-classification`` or
            ``question-answering``.
        *architectures: see ``Head``.
        **changes: fields that are not as in other families.
    """
    return replace(_USUAL[kind], architectures=architectures, **changes)
