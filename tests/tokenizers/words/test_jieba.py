"""Tokenizers whose words jieba finds, next to transformers' with the same vocabulary."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.making import family_tokenizer
from tests.tokenizers.odd_texts import odd_texts
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.tokenizers import SourceFiles, TextTokenizer
from zoo_roformer import RoFormer

pytest.importorskip("rjieba")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = odd_texts(
    "[MASK]在[SEP]今天 [CLS]",
    "今天天气非常好。Hello, world  x\ty\n你好 a-b c_d é",
    marks=("今天", "天气", "非常", "天安门", "naïve"),
)
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "with capitals": {"do_lower_case": False},
    "with accents": {"strip_accents": False},
    "without accents": {"do_lower_case": False, "strip_accents": True},
}


def write_files(folder: Path, **settings: Any) -> list[str]:
    """Write the files of a tokenizer, and return the vocabulary."""
    characters = sorted({character for text in TEXTS for character in text + text.lower()})
    single = [character for character in characters if character.strip()]
    pieces = [f"##{character}" for character in single[::2]]
    words = ["今天", "非常", "天安门", "hello", "Hello", "wor", "##ld", "naive", "x" * 100]
    tokens = [*SPECIAL, *words, *single[: len(single) * 3 // 4], *pieces]
    vocabulary = list(dict.fromkeys(token for token in tokens if token.strip()))
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), "utf-8")
    config = {"tokenizer_class": "RoFormerTokenizer", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return vocabulary


def reference_tokenizer(vocabulary: list[str], **settings: Any) -> Any:
    """Return transformers' tokenizer.

    It is not read from a directory: the path of ``vocab.txt`` would take the place of the
    vocabulary that decides which of jieba's words are split (transformers 5.23).
    """
    from transformers import RoFormerTokenizer

    ids = {token: number for number, token in enumerate(vocabulary)}
    return RoFormerTokenizer(vocab=ids, **settings)


@pytest.mark.by_default("default")
@pytest.mark.parametrize("name", SETTINGS)
def test_ids_and_offsets_equal_the_reference(name: str, tmp_path: Path) -> None:
    reference = reference_tokenizer(write_files(tmp_path, **SETTINGS[name]), **SETTINGS[name])
    tokenizer = family_tokenizer(RoFormer(), tmp_path)
    for text, encoded in zip(TEXTS, tokenizer.encode(TEXTS, max_tokens=None), strict=True):
        expected = reference(text, return_offsets_mapping=True)
        assert encoded.ids == expected["input_ids"], repr(text)
        assert encoded.offsets == expected["offset_mapping"], repr(text)


@pytest.mark.long
def test_pairs_equal_the_reference(tmp_path: Path) -> None:
    reference = reference_tokenizer(write_files(tmp_path))
    tokenizer = family_tokenizer(RoFormer(), tmp_path)
    # Of a pair with an empty text, the reference makes one text.
    pairs = [pair for pair in zip(TEXTS, TEXTS[::-1], strict=True) if pair[1]]
    for pair, encoded in zip(pairs, tokenizer.encode(pairs, max_tokens=40), strict=True):
        expected = reference(*pair, return_token_type_ids=True, truncation=True, max_length=40)
        assert encoded.ids == expected["input_ids"], pair
        assert encoded.type_ids == expected["token_type_ids"], pair


def test_the_type_of_the_model_decides_without_a_class(tmp_path: Path) -> None:
    write_files(tmp_path, tokenizer_class=None)
    files = SourceFiles(tmp_path)
    assert RoFormer().splitter(files) is None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    assert RoFormer().splitter(files) is not None


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_files(tmp_path)
    tokenizer = family_tokenizer(RoFormer(), tmp_path)
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(UsageError, match="jieba, and rjieba is not installed") as error:
        tokenizer.encode(["今天"], max_tokens=None)
    assert error.value.hint == "pip install rjieba"


def converted(tmp_path: Path) -> tuple[list[str], TextTokenizer]:
    """Convert a model there and back; return the vocabulary and our tokenizer."""
    import torch
    from transformers import RoFormerConfig, RoFormerModel

    hub = tmp_path / "hub"
    vocabulary = write_files(hub, model_max_length=40)
    config = RoFormerConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    RoFormerModel(config).save_pretrained(hub)
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    return vocabulary, load_text_tokenizer(load_checkpoint(tmp_path / "ours"))


def test_a_model_is_converted_both_ways(tmp_path: Path) -> None:
    vocabulary, ours = converted(tmp_path)
    reference = reference_tokenizer(vocabulary)
    name = "vocab.txt"
    assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "hub" / name).read_bytes()
    keys = json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())
    assert keys["tokenizer_class"] == "RoFormerTokenizer"
    assert keys["do_lower_case"] is True
    back = family_tokenizer(RoFormer(), tmp_path / "back")
    for text in TEXTS:
        ids = reference(text)["input_ids"]
        assert ours.encode([text], max_tokens=None)[0].ids == ids
        assert back.encode([text], max_tokens=None)[0].ids == ids
