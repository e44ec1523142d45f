"""The tokenizer of a model as GGUF describes it, which llama.cpp runs itself."""

import json
from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.checkpoint import TOKENIZER, Checkpoint
from zoo.errors import UsageError
from zoo.tokenizers.gguf import (
    BYTE_LEVEL,
    HUGGING_FACE,
    MODEL,
    PREFIX,
    ROLE_KEYS,
    SPACE,
    UNIGRAM,
    WORDPIECE,
    TokenKind,
)
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer_json import load

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNUSED_SCORE = -10_000.0
# Names of the splits that llama.cpp has (``llama-vocab.cpp``), by their patterns.
SPLIT_BY_WORD = "gpt-2"
SPLIT_BY_DIGIT = "smollm"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS_BY_PATTERN = {
    _WORDS + r"\p{N}{1,3}" + _REST: "llama-bpe",
    _WORDS + r"\p{N}" + _REST: "qwen2",
}
# kind of tokenizer -> its name in the format
MODELS = {"WordPiece": WORDPIECE, "BPE": BYTE_LEVEL, "Unigram": UNIGRAM}


def load_described(checkpoint: Checkpoint) -> "tuple[Tokenizer, dict[str, Any]]":
    """Return a tokenizer that GGUF describes, and its definition."""
    if checkpoint.model.tokenizer is None:
        raise UsageError(
            f"{checkpoint.name} has no tokenizer, which a GGUF file contains",
            "`zoo convert ... --tokenizer REF` adds one",
        )
    splitter = checkpoint.model.tokenizer.splitter
    if splitter is not None:
        raise UsageError(
            f"{checkpoint.name} has texts that {splitter.tool} splits, which llama.cpp cannot do",
            "--to onnx and --to openvino leave texts to the tokenizer",
        )
    tokenizer = load(SourceFiles(checkpoint.tokenizer_file.parent))
    definition: dict[str, Any] = json.loads(tokenizer.to_str())
    model_type = definition["model"]["type"]
    if model_type not in MODELS:
        raise UsageError(
            f"{checkpoint.name} has a tokenizer of the kind {model_type}, which zoo does not "
            "write to GGUF",
            "--to onnx and --to openvino leave texts to the tokenizer",
        )
    if model_type == "BPE" and definition["model"].get("byte_fallback"):
        raise UsageError(
            f"{checkpoint.name} has SentencePiece's BPE, whose scores tokenizer.json does not have",
            "--to onnx and --to openvino leave texts to the tokenizer",
        )
    return tokenizer, definition


def split_name(definition: Mapping[str, Any]) -> str | None:
    """Return the name that llama.cpp has for how a byte-level BPE splits texts, or ``None``."""
    splitter = definition["pre_tokenizer"] or {}
    steps = splitter.get("pretokenizers", [splitter])
    match [step.get("type") for step in steps]:
        case ["ByteLevel"]:
            return SPLIT_BY_WORD if steps[0].get("use_regex", True) else None
        case ["Digits", "ByteLevel"]:
            return SPLIT_BY_DIGIT if steps[0]["individual_digits"] else None
        case ["Split", "ByteLevel"]:
            return SPLITS_BY_PATTERN.get(steps[0]["pattern"].get("Regex"))
    return None


def add_vocabulary(writer: Any, checkpoint: Checkpoint, keys: Mapping[str, str]) -> None:
    """Write the tokens, their kinds, the special ones, and the family's keys of the tokenizer."""
    tokenizer, definition = load_described(checkpoint)
    model_type = definition["model"]["type"]
    rows = checkpoint.config.vocab_size
    pre = "default"
    if model_type == "BPE":
        pre = keys.get("pre") or split_name(definition) or "default"
    writer.add_string(MODEL, MODELS[model_type])
    writer.add_string(f"{PREFIX}pre", pre)
    tokens, kinds = _table(tokenizer, rows)
    if model_type == "WordPiece":
        prefix = definition["model"]["continuing_subword_prefix"]
        for row, token in enumerate(tokens):
            # words have a mark in front, in place of one within words
            if kinds[row] in (TokenKind.NORMAL, TokenKind.UNUSED):
                inner = token.startswith(prefix)
                tokens[row] = token.removeprefix(prefix) if inner else SPACE + token
    elif model_type == "BPE":
        merges = definition["model"]["merges"]
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    else:
        kinds[definition["model"]["unk_id"]] = TokenKind.UNKNOWN
        _add_unigram(writer, tokenizer, definition, rows)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    special = checkpoint.model.tokenizer.special if checkpoint.model.tokenizer else {}
    ids = {role: tokenizer.token_to_id(token) for role, token in special.items()}
    if model_type != "WordPiece":  # which always has both
        writer.add_add_bos_token("bos" in (ends := _ends(tokenizer)))
        writer.add_add_eos_token("eos" in ends)
    for role, number in {**ids, **_ends(tokenizer)}.items():
        if number is not None:
            writer.add_uint32(PREFIX + ROLE_KEYS[role], number)
    writer.add_string(HUGGING_FACE, SourceFiles(checkpoint.path).text(TOKENIZER))


def _ends(tokenizer: "Tokenizer") -> dict[str, int]:
    """Return the special tokens around a text, by the names that llama.cpp has for them."""
    text = tokenizer.encode("a", add_special_tokens=False).ids
    ids = tokenizer.encode("a").ids
    return {
        **({"bos": ids[0]} if ids[:1] != text[:1] else {}),
        **({"eos": ids[-1]} if ids[-1:] != text[-1:] else {}),
    }


def added_tokens(tokenizer: "Tokenizer") -> dict[int, bool]:
    """Return id -> whether it is special, of the tokens that are found before a text is cut."""
    return {number: token.special for number, token in tokenizer.get_added_tokens_decoder().items()}


def _table(tokenizer: "Tokenizer", rows: int) -> tuple[list[str], list[TokenKind]]:
    """Return the text and the kind of each id; ids without a token are unused."""
    tokens = [f"[UNUSED_{number}]" for number in range(rows)]
    kinds = [TokenKind.UNUSED] * rows
    for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
        tokens[number] = token
        kinds[number] = TokenKind.NORMAL
    for number, special in added_tokens(tokenizer).items():
        kinds[number] = TokenKind.CONTROL if special else TokenKind.USER_DEFINED
    return tokens, kinds


def _add_unigram(
    writer: Any, tokenizer: "Tokenizer", definition: dict[str, Any], rows: int
) -> None:
    """Write scores and normalization of a model of SentencePiece."""
    scores = [score for _, score in definition["model"]["vocab"]]
    writer.add_token_scores([*scores, *[UNUSED_SCORE] * (rows - len(scores))])
    plain = partial(tokenizer.encode, add_special_tokens=False)
    first = plain("a").tokens[:1]
    writer.add_add_space_prefix(first != [] and first[0].startswith(SPACE))
    writer.add_remove_extra_whitespaces(plain(" a  a ").ids == plain("a a").ids)
    if charsmap := _charsmap(definition["normalizer"] or {}):
        writer.add_precompiled_charsmap(b64decode(charsmap))


def _charsmap(normalizer: dict[str, Any]) -> str:
    """Return the compiled map of characters of SentencePiece, in base64; empty for none."""
    found = [_charsmap(step) for step in normalizer.get("normalizers", ())]
    return next(filter(None, found), "") or normalizer.get("precompiled_charsmap") or ""
