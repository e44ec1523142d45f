"""Checks of ``tokenizer.json`` before the ``tokenizers`` library loads it."""

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import VerificationError
from zoo.io.limits import (
    MAX_ADDED_CHARACTERS,
    MAX_ADDED_TOKENS,
    MAX_TEMPLATE_TOKENS,
    MAX_TOKEN_ID,
    MAX_TOKEN_LENGTH,
    MAX_TOKENIZER_GROWTH,
    MAX_TOKENIZER_STEPS,
    MAX_WORD_LENGTH,
)
from zoo.io.sizes import check_size
from zoo.tokenizers.untrusted.patterns import check_pattern

Definition = dict[str, Any]

_STEPS = {  # part of the file -> key of the steps of a sequence
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
_CHARSMAP = "precompiled_charsmap"
_MODEL_TEXTS = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")


def check_definition(definition: Any, path: Path, size: int) -> Definition:
    """Check the parsed content of a ``tokenizer.json`` of ``size`` bytes."""
    # The library does not validate the file: matching a regular expression may take unbounded time,
    # a replacement may lengthen a text a million times, padding to 3,000,000,000 tokens aborts the
    # process, and ids in a template are not looked up. Such files are refused here. Legacy layouts
    # of the library omit ``type``, so a step is recognized by its keys.
    if not isinstance(definition, dict):
        raise VerificationError(f"{path} is not a JSON object")
    model = definition.get("model")
    if not isinstance(model, dict):
        raise VerificationError(f"{path} has no model")
    _check_model(model, path, size)
    _check_added(definition.get("added_tokens"), path, size)
    steps = {part: list(_steps(definition.get(part), part, path)) for part in _STEPS}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        # the factor by which all steps of a part may lengthen a text
        growth = math.prod(_growth(step, path) for step in steps[part])
        check_size(path, f"growth of a text in {part}", growth, MAX_TOKENIZER_GROWTH)
    _check_templates(steps["post_processor"], path)
    return {**definition, "truncation": None, "padding": None}


def check_token(token: str, path: Path) -> None:
    """Check the length of a token."""
    if len(token) > MAX_TOKEN_LENGTH:  # a message for each of a million tokens takes a second
        check_size(path, f"length of the token {token[:20]!r}...", len(token), MAX_TOKEN_LENGTH)


def check_ids(vocabulary: Mapping[str, Any], path: Path, size: int) -> None:
    """Check that the ids of a vocabulary, of a file of ``size`` bytes, are unique and in bounds."""
    # The largest id decides how many rows an embedding table has. A token takes several bytes, so
    # that only a file with gaps between its ids has one above its size.
    largest = min(MAX_TOKEN_ID, size)
    tokens = dict[int, str]()
    for token, number in vocabulary.items():
        if len(token) > MAX_TOKEN_LENGTH:  # without a call for each of a million tokens
            check_token(token, path)
        if type(number) is not int or not 0 <= number <= largest:
            check_size(path, f"id of the token {token!r:.100}", number, MAX_TOKEN_ID, room=size)
        if tokens.setdefault(number, token) != token:
            raise VerificationError(
                f"{path}: {token!r} = {number} is also the id of {tokens[number]!r}"
            )


def _check_model(model: Mapping[str, Any], path: Path, size: int) -> None:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        check_ids(vocabulary, path, size)
    elif isinstance(vocabulary, list):
        _check_pieces(vocabulary, path)
        if model.get("unk_id") is not None:
            check_size(path, "unk_id", model["unk_id"], MAX_TOKEN_ID, room=len(vocabulary) - 1)
    else:
        raise VerificationError(f"{path}: its model has no vocabulary")
    for name in _MODEL_TEXTS:
        text = model.get(name)
        if not isinstance(text, str | None):
            raise VerificationError(f"{path}: {name} = {text!r:.100} is not a string")
        check_token(text or "", path)
    # The library removes the prefix of word continuations from the second part of a merge
    # unchecked, and aborts the process if it is longer than the part
    prefix = model.get("continuing_subword_prefix") or ""
    merges = model.get("merges")
    for merge in merges if prefix and isinstance(merges, list) else ():
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not str(parts[1]).startswith(prefix):
            raise VerificationError(
                f"{path}: the merge {merge!r:.100} does not continue with {prefix!r:.100}, the "
                "prefix of what continues a word"
            )
    if model.get("dropout"):
        raise VerificationError(
            f"{path}: dropout = {model['dropout']!r:.100} makes ids of the same text differ",
            "set it to null",
        )
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int):
        check_size(path, "max_input_chars_per_word", longest, MAX_WORD_LENGTH)


def _check_pieces(pieces: list[Any], path: Path) -> None:
    """Check the pieces of a Unigram model, whose ids are their indices."""
    texts = set()
    for number, piece in enumerate(pieces):
        if not isinstance(piece, list) or len(piece) != 2 or not isinstance(piece[0], str):
            raise VerificationError(
                f"{path}: the piece of id {number} is not a string with a score"
            )
        if piece[0] in texts:
            raise VerificationError(f"{path}: the piece {piece[0]!r:.100} has two ids")
        texts.add(piece[0])
        check_token(piece[0], path)


def _check_added(added: Any, path: Path, size: int) -> None:
    if added is None:
        return
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise VerificationError(f"{path}: added_tokens is not a list of tokens")
    check_size(path, "number of added tokens", len(added), MAX_ADDED_TOKENS)
    characters = 0
    ids = dict[str, Any]()
    for token in added:
        content = token.get("content")
        if not isinstance(content, str) or not content:
            raise VerificationError(f"{path}: an added token has no text")
        if ids.get(content, token.get("id")) != token.get("id"):
            raise VerificationError(f"{path}: the added token {content!r:.100} has two ids")
        ids[content] = token.get("id")
        characters += len(content)
    check_size(path, "length of all added tokens", characters, MAX_ADDED_CHARACTERS)
    check_ids(ids, path, size)


def _steps(value: Any, part: str, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps of a part; a sequence is flattened."""
    pending = [value]
    count = 0
    while pending:
        step = pending.pop()
        if step is None:
            continue
        if not isinstance(step, dict):
            raise VerificationError(f"{path}: a step of {part} is not a JSON object")
        count += 1
        check_size(path, f"number of steps of {part}", count, MAX_TOKENIZER_STEPS)
        inner = step.get(_STEPS[part])
        if inner is None:
            yield step
        elif isinstance(inner, list):
            pending += reversed(inner)
        else:
            raise VerificationError(f"{path}: {_STEPS[part]} of {part} is not a list")


def _growth(step: Mapping[str, Any], path: Path) -> int:
    """Return an upper bound for the number of characters that a step makes of one."""
    for key, value in step.items():
        if isinstance(value, str) and key != _CHARSMAP:
            check_token(value, path)
    if _CHARSMAP in step:
        try:
            charsmap = base64.b64decode(step[_CHARSMAP] or "", validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise VerificationError(f"{path}: its {_CHARSMAP} is malformed") from error
        return check_charsmap(charsmap, path) if step[_CHARSMAP] not in (None, "") else 1
    if step.get("type") == "ByteLevel":
        return 4  # every byte of a character becomes a character
    if isinstance(prefix := step.get("prepend"), str):
        return 1 + len(prefix)
    if "pattern" not in step:
        return 1
    shortest = _shortest_match(step["pattern"], path)
    content = step.get("content")
    if not isinstance(content, str):
        return 1
    return math.ceil(len(content) / shortest) or 1 if shortest else 1 + len(content)


def _shortest_match(pattern: Any, path: Path) -> int:
    """Check a search text or regular expression; return the length of its shortest match."""
    if isinstance(pattern, dict) and len(pattern) == 1:
        ((piece_type, text),) = pattern.items()
        if piece_type == "String" and isinstance(text, str) and text:
            check_token(text, path)
            return len(text)
        if piece_type == "Regex" and isinstance(text, str):
            return check_pattern(text, path).shortest
    raise VerificationError(f"{path}: {pattern!r:.100} is not a pattern to look for")


def check_charsmap(content: bytes, path: Path) -> int:
    """Check a compiled character map, and return the length of its longest replacement."""
    # The layout is the length of a trie in 4 bytes, the trie, and null-terminated replacements
    size = int.from_bytes(content[:4], "little")
    if len(content) < 4 or size % 4 or size > len(content) - 4:
        raise VerificationError(f"{path}: its {_CHARSMAP} is malformed")
    if size and not _is_sound_trie(content[4 : 4 + size], len(content) - 4 - size):
        raise VerificationError(f"{path}: its {_CHARSMAP} is malformed: its trie leads out of it")
    return max(1, *map(len, content[4 + size :].split(b"\0")))


def _is_sound_trie(content: bytes, replacements: int) -> bool:
    """Return ``True`` if no traversal of a double-array trie leaves its bounds."""
    # A unit has 32 bits (the layout of darts-clone). In a leaf, the highest bit is 1, and the
    # others are an offset in the replacements. In any other unit, bit 8 is set if it has a leaf,
    # and bits 9 to 31 are an offset. The exclusive or of the unit's index, the offset and a byte of
    # the text is the index of the next unit; without a byte, of the leaf
    import numpy as np

    units = np.frombuffer(content, "<u4").astype(np.int64)
    is_leaf = units >> 31 == 1
    inner = np.flatnonzero(~is_leaf)
    offsets = units[inner] >> 10 << ((units[inner] & 1 << 9) >> 6)
    next_units = inner ^ offsets
    if ((next_units | 0xFF) >= len(units)).any():
        return False
    has_leaf = (units[inner] >> 8 & 1) == 1
    leaf_offsets = units[is_leaf] & (1 << 31) - 1
    return bool(is_leaf[next_units[has_leaf]].all() and (leaf_offsets < replacements).all())


def _check_templates(steps: list[dict[str, Any]], path: Path) -> None:
    """Check the templates of post-processors."""
    count = 0
    for step in steps:
        for role in ("cls", "sep"):
            if role in step:
                value = step[role]
                if (
                    not isinstance(value, list)
                    or len(value) != 2
                    or not isinstance(value[0], str)
                    or type(value[1]) is not int
                ):
                    raise VerificationError(
                        f"{path}: {value!r:.100} in post_processor is not a token with its id"
                    )
                count += 2
        if "single" in step or "pair" in step or "special_tokens" in step:
            count += _check_template(step, path)
    check_size(path, "number of tokens around a text", count, MAX_TEMPLATE_TOKENS)


def _check_template(step: Mapping[str, Any], path: Path) -> int:
    """Check one template; return the maximum number of special tokens it adds."""
    tokens = step.get("special_tokens") or {}
    if not isinstance(tokens, dict):
        raise VerificationError(f"{path}: special_tokens of post_processor is not a JSON object")
    sizes = {name: _special_ids(value, path) for name, value in tokens.items()}
    most = 0
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = step.get(name) or []
        if not isinstance(pieces, list):
            raise VerificationError(f"{path}: {name} of post_processor is not a list")
        check_size(path, f"length of {name} of post_processor", len(pieces), MAX_TEMPLATE_TOKENS)
        parsed = [_template_piece(piece, path) for piece in pieces]
        if sorted(text for piece_type, text in parsed if piece_type == "Sequence") != texts:
            raise VerificationError(
                f"{path}: {name} of post_processor does not have each text once"
            )
        most = max(
            most, sum(sizes.get(text, 1) for piece_type, text in parsed if piece_type != "Sequence")
        )
    return most


def _special_ids(value: Any, path: Path) -> int:
    stated = value if isinstance(value, dict) else {}
    numbers = stated.get("ids")
    tokens = stated.get("tokens")
    if (
        not isinstance(stated.get("id"), str)
        or not isinstance(numbers, list)
        or not isinstance(tokens, list)
        or not all(type(number) is int for number in numbers)
        or not all(isinstance(token, str) for token in tokens)
    ):
        raise VerificationError(f"{path}: {value!r:.100} in post_processor is not a token with ids")
    return len(numbers)


def _template_piece(piece: Any, path: Path) -> tuple[str, str]:
    """Return piece_type and name of one piece of a template."""
    if isinstance(piece, dict) and len(piece) == 1:
        ((piece_type, value),) = piece.items()
        if piece_type in ("Sequence", "SpecialToken") and isinstance(value, dict):
            name = value.get("id")
            type_id = value.get("type_id")
            if isinstance(name, str) and type(type_id) is int and 0 <= type_id < 1 << 31:
                return piece_type, name
    raise VerificationError(f"{path}: {piece!r:.100} in post_processor is not part of a template")
