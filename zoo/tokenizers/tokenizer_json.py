"""Reading and completion of ``tokenizer.json``, for every kind of tokenizer."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from zoo.errors import VerificationError
from zoo.io.files import decode_text, read_regular
from zoo.io.json import dump_json, parse_json
from zoo.io.limits import MAX_FIXED_TOKENS, MAX_TOKEN_ID, MAX_TOKENIZER_BYTES, MAX_TOKENIZER_VALUES
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.source_files import TOKENIZER_JSON, SourceFiles
from zoo.tokenizers.untrusted.definition import check_definition

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CLEANS = "clean_up_tokenization_spaces"
CLEANS_BPE = f"{CLEANS}_for_bpe_even_though_it_will_corrupt_output"
# Replacements in decoded text if clean_up_tokenization_spaces is set.
CLEAN_UP = {f" {mark}": mark for mark in (".", "?", "!", ",")} | {" ' ": "'"}
CLEAN_UP |= {f" {end}": end for end in ("n't", "'m", "'s", "'ve", "'re")}


def load(files: SourceFiles) -> "Tokenizer":
    """Read ``tokenizer.json``."""
    return parse(files.bytes(TOKENIZER_JSON), files.path(TOKENIZER_JSON))


def read_definition(files: SourceFiles) -> dict[str, Any]:
    """Return the checked contents of ``tokenizer.json``."""
    content = files.bytes(TOKENIZER_JSON)
    path = files.path(TOKENIZER_JSON)
    file_definition = parse_json(content, path, max_values=MAX_TOKENIZER_VALUES)
    return check_definition(file_definition, path, len(content))


def parse(content: bytes, path: Path) -> "Tokenizer":
    """Return the tokenizer of a ``tokenizer.json``, without truncation or padding."""
    from tokenizers import Tokenizer

    file_definition = parse_json(content, path, max_values=MAX_TOKENIZER_VALUES)
    definition = check_definition(file_definition, path, len(content))
    if definition == file_definition:
        text = decode_text(content, path)
    else:
        text = dump_json(definition, ensure_ascii=False)
    with rust_parsing(path, "a tokenizer"):
        tokenizer = Tokenizer.from_str(text)
    check_normalized(tokenizer, path)
    # The library assigns ids after the vocabulary, in the order of the file.
    for added_token in definition.get("added_tokens") or ():
        number = tokenizer.token_to_id(added_token["content"])
        if number != added_token.get("id"):
            raise VerificationError(
                f"{path} gives the added token {added_token['content']!r:.100} the id "
                f"{added_token.get('id')!r:.100}, and its place is {number}"
            )
    # The library does not check the ids of the post-processor, and aborts if one is missing.
    for token, number in _template_tokens(definition.get("post_processor")):
        vocabulary_id = tokenizer.token_to_id(token)
        if number is None or number != vocabulary_id:
            raise VerificationError(
                f"{path}: its post_processor gives {token!r:.100} the id {number}, and its "
                f"vocabulary the id {vocabulary_id}"
            )
    return tokenizer


class _Truncation(msgspec.Struct, frozen=True):
    max_length: Annotated[int, msgspec.Meta(ge=0)]
    stride: Annotated[int, msgspec.Meta(ge=0)] = 0
    strategy: Literal["LongestFirst", "OnlyFirst", "OnlySecond"] = "LongestFirst"
    direction: Literal["Left", "Right"] = "Right"


class _FixedLength(msgspec.Struct, frozen=True):
    Fixed: Annotated[int, msgspec.Meta(ge=0, le=MAX_FIXED_TOKENS)]


class _Padding(msgspec.Struct, frozen=True):
    strategy: Literal["BatchLongest"] | _FixedLength
    direction: Literal["Left", "Right"]
    pad_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)]
    pad_type_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)]
    pad_token: str
    pad_to_multiple_of: Annotated[int, msgspec.Meta(ge=0, le=MAX_FIXED_TOKENS)] | None = None


class _Sections(msgspec.Struct, frozen=True):
    truncation: _Truncation | None = None
    padding: _Padding | None = None


def definition_of(part: Any) -> dict[str, Any] | None:
    """Return what ``tokenizer.json`` has of a part, such as the normalizer; ``None`` for none."""
    definition: dict[str, Any] | None = None
    if part is not None:
        definition = json.loads(part.__getstate__())  # The state of a part is its JSON.
    return definition


def read_sections(files: SourceFiles) -> dict[str, Any]:
    """Return the sections ``truncation`` and ``padding`` of ``tokenizer.json`` that are set."""
    if not files.has(TOKENIZER_JSON):
        return {}
    content = files.bytes(TOKENIZER_JSON).removeprefix(BOM_UTF8)
    try:
        sections = msgspec.json.decode(content, type=_Sections)
    except msgspec.DecodeError as error:
        raise VerificationError(f"{files.path(TOKENIZER_JSON)}: {error}") from error
    all_sections: dict[str, Any] = msgspec.to_builtins(sections)
    return {name: section for name, section in all_sections.items() if section is not None}


def read_checked(path: Path) -> bytes:
    """Return the contents of a ``tokenizer.json`` after checking that it can be loaded."""
    content = read_regular(path, "tokenizer", MAX_TOKENIZER_BYTES)
    parse(content, path)
    return content


def stored_kind(files: SourceFiles) -> str | None:
    """Return the kind of model of ``tokenizer.json``: ``BPE``, ``Unigram`` or another.

    Returns ``None`` if there is no such file.

    Raises:
        SourceError, VerificationError: see ``load``.
    """
    if not files.has(TOKENIZER_JSON):
        return None
    return type(load(files).model).__name__


def check_normalized(tokenizer: "Tokenizer", path: "Path | str") -> None:
    """Check that no added token is normalized to the empty string.

    The library would match the empty string everywhere, and panic.
    """
    normalizer = tokenizer.normalizer
    if normalizer is None:
        return
    for token in tokenizer.get_added_tokens_decoder().values():
        if not token.normalized:
            continue
        with rust_parsing(path, "a tokenizer"):
            normalized = normalizer.normalize_str(token.content)
        if not normalized:
            raise VerificationError(
                f"{path}: nothing is left of the added token {token.content!r} "
                "when it is normalized"
            )


def _template_tokens(processor: Any) -> Iterator[tuple[str, int | None]]:
    """Yield the special tokens of a post-processor, with their ids, for each of its layouts."""
    definition: Mapping[str, Any] = processor or {}
    for part in definition.get("processors") or ():
        yield from _template_tokens(part)
    for role in ("cls", "sep"):
        if role in definition:
            token, number = definition[role]
            yield token, number
    special_tokens = definition.get("special_tokens") or {}
    for piece in (*(definition.get("single") or ()), *(definition.get("pair") or ())):
        if "SpecialToken" in piece and piece["SpecialToken"]["id"] not in special_tokens:
            yield piece["SpecialToken"]["id"], None
    for entry in special_tokens.values():
        if len(entry["tokens"]) != len(entry["ids"]):
            yield entry["id"], None
        yield from zip(entry["tokens"], entry["ids"], strict=False)


def finalize(tokenizer: "Tokenizer", settings: TokenizerFilesConfig) -> None:
    """Set the final options of a tokenizer before it is stored.

    The decoder is extended by the clean-up of spaces that the configuration specifies; for BPE,
    as in transformers 5, only if it insists. Truncation and padding are disabled, since they are
    options of each run.
    """
    from tokenizers import decoders

    types = (bool, type(None))
    cleans_up = settings.option(CLEANS, types, False)
    if type(tokenizer.model).__name__ == "BPE":
        cleans_up = cleans_up and settings.option(CLEANS_BPE, types, False)
    if cleans_up:
        steps = []
        if tokenizer.decoder is not None:
            steps.append(tokenizer.decoder)
        steps.append(decoders.Fuse())
        for text, replacement in CLEAN_UP.items():
            steps.append(decoders.Replace(text, replacement))
        tokenizer.decoder = decoders.Sequence(steps)
    check_normalized(tokenizer, settings.origin)
    tokenizer.no_truncation()
    tokenizer.no_padding()
