"""The tokenizer of static embeddings: the tokens of a model, without special ones."""

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class StaticVocabulary:
    """The tokens that get a vector."""

    definition: dict[str, Any]  # the ``tokenizer.json`` of these tokens
    ids: list[int]  # for each of them its id in the model
    prefix: list[int]  # ids of the special tokens before a text of the model
    suffix: list[int]  # ids of those after it
    unknown: int | None  # index of the unknown token, if any


def vocabulary_of(tokenizer: "Tokenizer", padding: str | None = None) -> StaticVocabulary:
    """Return the tokens of a tokenizer except special, added and unused ones."""
    # The padding and the unknown token stay, as in the authors' library: the rank of a token, by
    # which it is weighted, counts them.
    definition = json.loads(tokenizer.to_str())
    model = definition["model"]
    added = definition["added_tokens"]
    pieces: list[str] = _pieces(model)
    unknown = _unknown(model)
    dropped = {token["content"] for token in added} - {unknown, padding}
    ids = [
        number
        for number, piece in enumerate(pieces)
        if piece is not None and piece not in dropped and not UNUSED.match(piece)
    ]
    if not ids:
        raise UsageError("the tokenizer has no tokens except special ones")
    kept = [pieces[number] for number in ids]
    numbers = {piece: number for number, piece in enumerate(kept)}
    prefix, suffix = _ends(tokenizer)
    definition |= {
        "model": _renumbered(model, numbers),
        "added_tokens": [
            {**token, "id": numbers[token["content"]]}
            for token in added
            if token["content"] in numbers
        ],
        "pre_tokenizer": _with_space(definition["pre_tokenizer"]),
        **dict.fromkeys(("post_processor", "truncation", "padding")),
    }
    definition["added_tokens"].sort(key=lambda token: token["id"])
    return StaticVocabulary(definition, ids, prefix, suffix, numbers.get(unknown or ""))


def _pieces(model: dict[str, Any]) -> list[Any]:
    """Return the tokens in the order of their ids; ``None`` for an id without one."""
    if isinstance(model["vocab"], list):  # of Unigram: tokens and their log-probabilities
        return [piece for piece, _ in model["vocab"]]
    pieces: list[Any] = [None] * (1 + max(model["vocab"].values(), default=-1))
    for piece, number in model["vocab"].items():
        pieces[number] = piece
    return pieces


def _unknown(model: dict[str, Any]) -> str | None:
    if isinstance(model["vocab"], list):
        number = model.get("unk_id")
        return None if number is None else model["vocab"][number][0]
    return model.get("unk_token")


def _renumbered(model: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    if isinstance(model["vocab"], list):
        pairs = [pair for pair in model["vocab"] if pair[0] in numbers]
        unknown = _unknown(model)
        return {**model, "vocab": pairs, "unk_id": None if unknown is None else numbers[unknown]}
    return {**model, "vocab": numbers}


def _with_space(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """Let the first word of a text have the token that it has after a space."""
    if step is None:
        return None
    if step["type"] == "Sequence":
        return {**step, "pretokenizers": [_with_space(part) for part in step["pretokenizers"]]}
    return {**step, "add_prefix_space": True} if step["type"] == "ByteLevel" else step


def _ends(tokenizer: "Tokenizer") -> tuple[list[int], list[int]]:
    """Return the ids of the special tokens before and after a text."""
    encoded = tokenizer.encode("a")
    special = [bool(flag) for flag in encoded.special_tokens_mask]
    if all(special):
        return [], list(encoded.ids)
    first = special.index(False)
    last = len(special) - special[::-1].index(False)
    return list(encoded.ids[:first]), list(encoded.ids[last:])
