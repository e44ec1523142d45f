"""Words for what the normalizer of a tokenizer does to texts."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

LOWER_CASE = "lower case"
WITHOUT_ACCENTS = "accents removed"
CHARACTER_MAP = "the character map of its SentencePiece model"
KEPT = "case and accents kept"
DOUBLED_QUOTES = ("``", "''")
UNICODE_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def normalizer_text(tokenizer_json: bytes) -> str:
    """Return what a tokenizer changes in texts, such as ``lower case, accents removed``.

    Changes of white space and control characters are left out.

    Args:
        tokenizer_json: contents of ``tokenizer.json``.
    """
    normalizer = json.loads(tokenizer_json).get("normalizer")
    changes = dict.fromkeys(_changes(normalizer or {}))
    if changes.keys().isdisjoint({LOWER_CASE, WITHOUT_ACCENTS, CHARACTER_MAP}):
        return ", ".join([KEPT, *changes])
    return ", ".join(changes)


def _changes(normalizer: Mapping[str, Any]) -> Iterator[str]:
    name = normalizer.get("type")
    if name == "Sequence":
        for part in normalizer["normalizers"]:
            yield from _changes(part)
    elif name == "BertNormalizer":
        lowercase = normalizer.get("lowercase", True)
        if lowercase:
            yield LOWER_CASE
        strip_accents = normalizer.get("strip_accents")
        # Accents are removed with upper case, unless it is said otherwise.
        if lowercase if strip_accents is None else strip_accents:
            yield WITHOUT_ACCENTS
    elif name == "Lowercase":
        yield LOWER_CASE
    elif name == "StripAccents":
        yield WITHOUT_ACCENTS
    elif name == "Replace" and normalizer["pattern"].get("String") in DOUBLED_QUOTES:
        yield f"`` and '' as {normalizer['content']}"
    elif name in UNICODE_FORMS:
        yield f"Unicode in {name}"
    elif name == "Precompiled":
        yield CHARACTER_MAP
