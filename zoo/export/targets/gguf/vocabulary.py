"""The tokenizer of a model as GGUF describes it, which llama.cpp runs itself."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gguf

from zoo.checkpoint import TOKENIZER, Checkpoint
from zoo.errors import UsageError
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer_json import load

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Kind = gguf.TokenType
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # in front of a word
# role of a special token -> its key
KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # as the format spells it
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
}


def add_vocabulary(writer: Any, checkpoint: Checkpoint, keys: Mapping[str, str]) -> None:
    """Write the tokens, their kinds, the special ones, and the family's keys of the tokenizer."""
    for key, value in {"pre": "default", **keys}.items():
        writer.add_string(f"tokenizer.ggml.{key}", value)
    tokenizer = load(SourceFiles(checkpoint.path))
    definition = json.loads(tokenizer.to_str())
    kind = definition["model"]["type"]
    rows: int = checkpoint.config.vocab_size
    if kind == "WordPiece":
        _add_wordpiece(writer, tokenizer, definition, rows)
    elif kind == "BPE":
        tokens, kinds = _table(tokenizer, rows)
        merges = definition["model"]["merges"]
        writer.add_token_list(tokens)
        writer.add_token_types(kinds)
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
        ends = tokenizer.encode("").ids
        writer.add_add_bos_token(len(ends) > 0)
        writer.add_add_eos_token(len(ends) > 1)
    else:
        raise UsageError(
            f"{checkpoint.path / TOKENIZER} is a tokenizer of the kind {kind}, which zoo does not "
            "write to GGUF",
            "--to onnx and --to openvino leave texts to the tokenizer",
        )
    special = checkpoint.model.tokenizer.special if checkpoint.model.tokenizer else {}
    for role, key in KEYS.items():
        number = tokenizer.token_to_id(special[role]) if role in special else None
        if number is not None:
            writer.add_uint32(f"tokenizer.ggml.{key}", number)


def added_tokens(tokenizer: "Tokenizer") -> dict[int, bool]:
    """Return id -> whether it is special, of the tokens that are found before a text is cut."""
    return {number: token.special for number, token in tokenizer.get_added_tokens_decoder().items()}


def _table(tokenizer: "Tokenizer", rows: int) -> tuple[list[str], list[Kind]]:
    """Return the text and the kind of each id; ids without a token are unused."""
    tokens = [f"[UNUSED_{number}]" for number in range(rows)]
    kinds = [Kind.UNUSED] * rows
    for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
        tokens[number], kinds[number] = token, Kind.NORMAL
    for number, special in added_tokens(tokenizer).items():
        kinds[number] = Kind.CONTROL if special else Kind.USER_DEFINED
    return tokens, kinds


def _add_wordpiece(
    writer: Any, tokenizer: "Tokenizer", definition: dict[str, Any], rows: int
) -> None:
    prefix = definition["model"]["continuing_subword_prefix"]
    tokens, kinds = _table(tokenizer, rows)
    marked = [
        token
        if kind not in (Kind.NORMAL, Kind.UNUSED)
        else token.removeprefix(prefix)
        if token.startswith(prefix)
        else SPACE + token
        for token, kind in zip(tokens, kinds, strict=True)
    ]
    writer.add_token_list(marked)
    writer.add_token_types(kinds)
    # llama.cpp puts ``bos`` in front of a text, and ``seperator`` behind it
    writer.add_uint32("tokenizer.ggml.bos_token_id", int(tokenizer.encode("").ids[0]))
