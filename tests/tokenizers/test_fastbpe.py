"""Tokenizers of fastBPE, next to transformers' with the same files."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.making import family_tokenizer
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.conversion.convert import convert
from zoo.data.encoding import DocumentTokenizer
from zoo.hub.source import CheckpointDir
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.bpe.merges import END, merge, read_merges
from zoo.tokenizers.fastbpe import CONTINUED
from zoo_roberta import Roberta

TEXTS = [
    "Chúng_tôi là những nghiên_cứu_viên .",
    "Tôi là sinh_viên trường đại_học Công_nghệ .",
    "Dòng hai\n\n  ba\n",
    "a",
    "a\n",
    "",
    "  ",
    "<mask> là <s> x</s>y <mask>.",
    "😀😀 x😀",
    "</w> @@ foo@@ @@",
    "e\u0301\u00a0x\u3000y",
    "aaaaaaa aaaa",
    "low lower lowest newest widest",
    "x\r\ny\x85z\x1fw",
]
SPECIAL = {"<s>", "</s>", "<unk>", "<pad>", "<mask>"}


def write_files(folder: Path, **config: Any) -> Path:
    """Write merges that are learned from the texts, and all but every fourth piece."""
    words = " ".join(TEXTS).split()
    parts = [[*word[:-1], word[-1] + END] for word in words]
    lines = []
    for _ in range(60):
        pairs = Counter(pair for part in parts for pair in pairwise(part))
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        lines.append(f"{best[0]} {best[1]} {pairs[best]}\n")
        ranks = read_merges("".join(lines))
        parts = [list(merge(word, ranks)) for word in words]
    symbols = {symbol for part in parts for symbol in part} | {"".join(pair) for pair in ranks}
    symbols |= {character for word in words for character in word}
    pieces = []
    for symbol in sorted(symbols):
        piece = symbol.removesuffix(END) if symbol.endswith(END) else symbol + CONTINUED
        if piece and piece not in SPECIAL:
            pieces.append(piece)
    unique = list(dict.fromkeys(pieces))
    vocabulary = [piece for number, piece in enumerate(unique) if number % 4]
    folder.mkdir(exist_ok=True)
    (folder / "bpe.codes").write_text("".join(lines), "utf-8")
    (folder / "vocab.txt").write_text("".join(f"{piece} 7\n" for piece in vocabulary), "utf-8")
    settings = {"tokenizer_class": "PhobertTokenizer", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def our_tokenizer(folder: Path) -> TextTokenizer:
    return family_tokenizer(Roberta(), folder)


@pytest.mark.parametrize("reference", ["PhobertTokenizer", "BertweetTokenizer"])
def test_ids_equal_the_reference(reference: str, tmp_path: Path) -> None:
    import transformers

    folder = write_files(tmp_path)
    ours = our_tokenizer(folder)
    expected = getattr(transformers, reference).from_pretrained(folder)
    for text, other in zip(TEXTS, TEXTS[::-1], strict=True):
        (encoded,) = ours.encode([text], max_tokens=None)
        assert encoded.ids == expected(text)["input_ids"], text
        (pair,) = ours.encode([(text, other)], max_tokens=None)
        assert pair.ids == expected(text, other)["input_ids"], text
        assert ours.decode(encoded.ids, skip_special=False) == expected.decode(encoded.ids)


def test_offsets_are_places_in_the_text(tmp_path: Path) -> None:
    tokenizer = our_tokenizer(write_files(tmp_path))
    text = "Tôi <mask> sinh_viên\n lowest"
    (encoded,) = tokenizer.encode([text], max_tokens=None)
    parts = [text[start:end] for start, end in encoded.offsets[1:-1]]
    assert "".join(parts) == text.replace(" ", "")
    assert "<mask>" in parts


def test_documents_have_the_tokens_of_their_text(tmp_path: Path) -> None:
    tokenizer = our_tokenizer(write_files(tmp_path))
    json_file = tokenizer._tokenizer.to_str().encode()
    documents = DocumentTokenizer(json_file, tokenizer.info, "line", "int64")
    encoded = documents.encode(["\n".join(TEXTS[:2])])
    counts = [tokenizer.encode([line], max_tokens=None)[0].n - 2 for line in TEXTS[:2]]
    assert encoded.sentences.tolist() == counts


@pytest.mark.long  # tests/tokenizers/test_moses_bpe.py has the steps
def test_a_model_is_converted_both_ways(tmp_path: Path) -> None:
    import torch
    from transformers import AutoTokenizer, RobertaConfig, RobertaModel

    hub = write_files(tmp_path / "hub", model_max_length=40)
    expected = AutoTokenizer.from_pretrained(hub)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = RobertaConfig(vocab_size=len(expected), intermediate_size=24, **sizes)
    torch.manual_seed(0)
    RobertaModel(config).save_pretrained(hub)
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    ours = load_text_tokenizer(load_checkpoint(tmp_path / "ours"))
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    for name in ("bpe.codes", "vocab.txt"):
        assert (tmp_path / "back" / name).read_bytes() == (hub / name).read_bytes()
    for text in TEXTS:
        ids = expected(text)["input_ids"]
        assert back(text)["input_ids"] == ids
        assert ours.encode([text], max_tokens=None)[0].ids == ids
