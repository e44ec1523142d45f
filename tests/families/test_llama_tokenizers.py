"""Tokenizers of published decoders: byte-level BPE, and SentencePiece's BPE with bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from zoo.tokenizers import SourceFiles
from zoo_llama import Llama

TEXTS = [
    "Alice was beginning to get very tired of sitting by her sister on the bank.",
    "So she was considering, as well as she could, whether the pleasure of making a daisy-chain",
    "I'll be 12345 years old, don't you think? ñandú, 日本語 and 'tis the end.",
]
# Patterns of the published files.
SPLIT_BY_THREE_DIGITS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT_BY_DIGIT = SPLIT_BY_THREE_DIGITS.replace("{1,3}", "")
BEGIN = "<|begin_of_text|>"
END = "<|end_of_text|>"
CASES = [
    "Hello world",
    "  two  spaces\n\nnew line",
    "日本語 ñandú 12345 I'll",
    f"<|im_start|>a<think> b{END}",
    "an emoji 🙂 that is only bytes",
    "",
]


def byte_level(pattern: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def begins(tokenizer: Tokenizer, token: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=f"{token} $A",
        pair=f"{token} $A {token}:1 $B:1",
        special_tokens=[(token, tokenizer.token_to_id(token))],
    )


def three_digits(folder: Path) -> dict[str, Any]:
    """Write a tokenizer of Llama 3 and SmolLM 3; return its configuration."""
    tokenizer = byte_level(SPLIT_BY_THREE_DIGITS)
    tokenizer.add_special_tokens([BEGIN, END])
    offsets = processors.ByteLevel(trim_offsets=False)
    tokenizer.post_processor = processors.Sequence([offsets, begins(tokenizer, BEGIN)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": BEGIN, "eos_token": END}
    return {**names, "tokenizer_class": "PreTrainedTokenizerFast"}


def one_digit(folder: Path) -> dict[str, Any]:
    """Write a tokenizer of Qwen, with the files of its vocabulary; return its configuration."""
    tokenizer = byte_level(SPLIT_BY_DIGIT)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.model.save(str(folder))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|endoftext|>",
        "errors": "replace",
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def pieces(special: list[str]) -> Tokenizer:
    """Return SentencePiece's BPE, in which unknown characters are bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    as_bytes = [f"<0x{number:02X}>" for number in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=380, special_tokens=[*special, *as_bytes], show_progress=False
    )
    tokenizer.train_from_iterator([text for text in TEXTS if text.isascii()], trainer)
    definition = json.loads(tokenizer.to_str())
    definition["added_tokens"] = definition["added_tokens"][: len(special)]
    definition["pre_tokenizer"] = None
    trained: Tokenizer = Tokenizer.from_str(json.dumps(definition))
    return trained


def with_dummy_space(folder: Path) -> dict[str, Any]:
    """Write a tokenizer of Llama 2, Mistral and TinyLlama; return its configuration."""
    tokenizer = pieces(["<unk>", "<s>", "</s>"])
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = begins(tokenizer, "<s>")
    tokenizer.save(str(folder / "tokenizer.json"))
    return {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "legacy": False,
        "model_max_length": 2048,
        "pad_token": "</s>",
        "padding_side": "right",
        "sp_model_kwargs": {},
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
        "use_default_system_prompt": False,
    }


def without_dummy_space(folder: Path) -> dict[str, Any]:
    """Write a tokenizer of Gemma; return its configuration."""
    tokenizer = pieces(["<pad>", "<eos>", "<bos>", "<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.post_processor = begins(tokenizer, "<bos>")
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {role: f"<{role.removesuffix('_token')}>" for role in ("bos_token", "eos_token")}
    return {
        **names,
        "add_bos_token": True,
        "add_eos_token": False,
        "pad_token": "<pad>",
        "spaces_between_special_tokens": False,
        "tokenizer_class": "GemmaTokenizer",
        "unk_token": "<unk>",
    }


@pytest.mark.parametrize("write", [three_digits, one_digit, with_dummy_space, without_dummy_space])
def test_a_published_tokenizer_keeps_its_ids(
    write: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    """Those that its ``tokenizer.json`` defines, in both directions."""
    config = write(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    definition = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = Llama().tokenizer(SourceFiles(tmp_path))
    for text in CASES:
        ids = definition.encode(text).ids
        assert ours.encode(text).ids == ids, text
        assert ours.decode(ids) == definition.decode(ids), text
    pair = definition.encode("one", "two")
    assert ours.encode("one", "two").ids == pair.ids
    emoji = definition.encode("🙂", add_special_tokens=False)
    assert len(emoji.ids) >= 4  # It is read byte by byte.
    assert definition.decode(emoji.ids) == "🙂"
