"""Tokenizers of XLM and FlauBERT, next to transformers' with the same files."""

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.tokenizers.making import family_tokenizer
from tests.tokenizers.odd_texts import odd_texts
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.conversion.convert import convert
from zoo.data.encoding import DocumentTokenizer
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo.tokenizers import SourceFiles
from zoo.tokenizers.bpe.merges import END, merge, read_merges
from zoo.tokenizers.words.moses import _substitutions, _tokenizer
from zoo_xlm import XLM

pytest.importorskip("sacremoses")

TEXTS = odd_texts("<special1> is <s> x</s>y <special1>.", "low lower lowest newest widest")
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10))]
CLASSES = {
    "XLM": ("XLMTokenizer", {}),
    "XLM with capitals": ("XLMTokenizer", {"do_lowercase_and_remove_accent": False}),
    "FlauBERT": ("FlaubertTokenizer", {}),
    "FlauBERT in lower case": ("FlaubertTokenizer", {"do_lowercase": True}),
}


def learn_merges(words: list[str], count: int) -> tuple[str, list[str]]:
    """Return merges that are learned from words, and their symbols."""
    parts = [[*word[:-1], word[-1] + END] for word in words]
    lines = []
    for _ in range(count):
        pairs = Counter(pair for part in parts for pair in pairwise(part))
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        lines.append(f"{best[0]} {best[1]} {pairs[best]}\n")
        ranks = read_merges("".join(lines))
        parts = [list(merge(word, ranks)) for word in words]
    return "".join(lines), sorted({symbol for part in parts for symbol in part})


def write_files(folder: Path) -> None:
    """Write merges, and all but every fifth piece."""
    words = [word for text in TEXTS[:24] for word in text.split() if len(word) < 30]
    merges, symbols = learn_merges(words, 60)
    characters = sorted({character for text in TEXTS for character in text if character.strip()})
    symbols += [*characters, *(character + END for character in characters)]
    unique = list(dict.fromkeys(symbols))
    pieces = [piece for number, piece in enumerate(unique) if number % 5]
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *pieces])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, indent=2), "utf-8")
    (folder / "merges.txt").write_text(merges, "utf-8")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moses")
    write_files(folder)
    return folder


def write_settings(files: Path, folder: Path, **settings: Any) -> Path:
    """Write a copy of the files, with settings."""
    folder.mkdir(exist_ok=True)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_bytes((files / name).read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.by_default("FlauBERT in lower case")
@pytest.mark.parametrize("name", CLASSES)
def test_ids_equal_the_reference(name: str, files: Path, tmp_path: Path) -> None:
    import transformers

    class_name, settings = CLASSES[name]
    folder = write_settings(files, tmp_path, tokenizer_class=class_name, **settings)
    tokenizer = family_tokenizer(XLM(), folder)
    reference = getattr(transformers, class_name).from_pretrained(folder)
    for text, encoded in zip(TEXTS, tokenizer.encode(TEXTS, max_tokens=None), strict=True):
        assert encoded.ids == reference(text)["input_ids"], repr(text)
        decoded = tokenizer.decode(encoded.ids, skip_special=False)
        assert decoded == reference.decode(encoded.ids), repr(text)
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    for pair, encoded in zip(pairs, tokenizer.encode(pairs, max_tokens=None), strict=True):
        assert encoded.ids == reference(*pair)["input_ids"], pair


@pytest.mark.long
@pytest.mark.parametrize("language", ["de", "ro", "it", "ko"])
def test_other_languages_equal_the_reference(language: str, files: Path, tmp_path: Path) -> None:
    from transformers import XLMTokenizer

    folder = write_settings(files, tmp_path, tokenizer_class="XLMTokenizer", src_lang=language)
    tokenizer = family_tokenizer(XLM(), folder)
    reference = XLMTokenizer.from_pretrained(folder)
    # The reference takes a language where special tokens are text.
    texts = [text for text in TEXTS if not any(token in text for token in SPECIAL)]
    for text, encoded in zip(texts, tokenizer.encode(texts, max_tokens=None), strict=True):
        tokens = reference._tokenize(text, lang=language)
        assert encoded.ids[1:-1] == reference.convert_tokens_to_ids(tokens), repr(text)


def test_offsets_are_places_in_the_text(files: Path, tmp_path: Path) -> None:
    folder = write_settings(files, tmp_path, tokenizer_class="FlaubertTokenizer")
    tokenizer = family_tokenizer(XLM(), folder)
    text = "L'e\u0301te\u0301 ; <special1> (x )…"
    (encoded,) = tokenizer.encode([text], max_tokens=None)
    parts = [text[start:end] for start, end in encoded.offsets[1:-1]]
    assert "".join(dict.fromkeys(parts)) == "L'e\u0301t;<special1>(x)…"
    assert encoded.offsets[encoded.ids.index(tokenizer.mask_id or 0)] == (10, 20)
    for line, encoded in zip(TEXTS, tokenizer.encode(TEXTS, max_tokens=None), strict=True):
        last = 0
        for start, end in encoded.offsets[1:-1]:
            assert 0 <= start <= end <= len(line)
            assert start >= last or "MULTI" in line
            last = start


def test_documents_have_the_tokens_of_their_text(files: Path, tmp_path: Path) -> None:
    folder = write_settings(files, tmp_path, tokenizer_class="XLMTokenizer")
    tokenizer = family_tokenizer(XLM(), folder)
    json_file = tokenizer._tokenizer.to_str().encode()
    description = ExistingTokenizer(json_file, tokenizer.info).description()
    changes = "punctuation normalized, lower case, accents removed"
    assert description.endswith(f"tokens; split by Moses, {changes}")
    documents = DocumentTokenizer(json_file, tokenizer.info, "line", "int64")
    lines = ["Hello, world!", "It is low (lower)."]
    encoded = documents.encode(["\n".join(lines)])
    (joined,) = tokenizer.encode([" ".join(lines)], max_tokens=None)
    assert encoded.tokens.tolist() == joined.ids[1:-1]
    counts = [tokenizer.encode([line], max_tokens=None)[0].n - 2 for line in lines]
    assert encoded.sentences.tolist() == counts


@pytest.mark.parametrize(
    ("language", "library"), [("zh", "jieba"), ("ja", "KyTea"), ("th", "PyThaiNLP")]
)
def test_languages_of_other_libraries_are_refused(
    language: str, library: str, files: Path, tmp_path: Path
) -> None:
    folder = write_settings(files, tmp_path, tokenizer_class="XLMTokenizer", src_lang=language)
    with pytest.raises(VerificationError, match=f"'{language}' is not .* found by {library}"):
        family_tokenizer(XLM(), folder)


def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, files: Path, tmp_path: Path
) -> None:
    folder = write_settings(files, tmp_path, tokenizer_class="XLMTokenizer")
    tokenizer = family_tokenizer(XLM(), folder)
    for cache in (_substitutions, _tokenizer):
        cache.cache_clear()
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UsageError, match="Moses, and sacremoses is not installed") as error:
        tokenizer.encode(["a"], max_tokens=None)
    assert error.value.hint == "pip install sacremoses"


def test_missing_and_malformed_files_are_named(files: Path, tmp_path: Path) -> None:
    folder = write_settings(files, tmp_path, tokenizer_class="XLMTokenizer", unk_token="<none>")
    with pytest.raises(VerificationError, match="no token <none>"):
        XLM().tokenizer(SourceFiles(folder))
    (folder / "vocab.json").write_text("[]")
    with pytest.raises(VerificationError, match="not a JSON object"):
        XLM().tokenizer(SourceFiles(folder))
    (folder / "vocab.json").unlink()
    with pytest.raises(SourceError, match="with merges"):
        XLM().tokenizer(SourceFiles(folder))


def test_damaged_merges_are_an_error(files: Path, tmp_path: Path) -> None:
    folder = write_settings(files, tmp_path, tokenizer_class="XLMTokenizer")
    tokenizer = family_tokenizer(XLM(), folder)
    splitter: Any = tokenizer.info.splitter
    tokenizer.info.splitter = replace(splitter, merges=splitter.merges[:40])
    with pytest.raises(VerificationError, match=r"merges of the tokenizer: .* damaged"):
        tokenizer.encode(["a b"], max_tokens=None)


@pytest.mark.by_default("XLM")
@pytest.mark.parametrize("name", ["XLM", "FlauBERT in lower case"])
def test_a_model_is_converted_both_ways(name: str, files: Path, tmp_path: Path) -> None:
    import torch
    import transformers

    class_name, settings = CLASSES[name]
    hub = write_settings(files, tmp_path / "hub", model_max_length=40, **settings)
    reference = getattr(transformers, class_name).from_pretrained(hub)
    prefix = class_name.removesuffix("Tokenizer")
    config_class = getattr(transformers, f"{prefix}Config")
    config = config_class(vocab_size=len(reference), emb_dim=16, n_layers=1, n_heads=2)
    torch.manual_seed(0)
    getattr(transformers, f"{prefix}WithLMHeadModel")(config).save_pretrained(hub)
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    for file in ("vocab.json", "merges.txt"):
        assert (tmp_path / "back" / file).read_bytes() == (hub / file).read_bytes()
    ours = load_text_tokenizer(load_checkpoint(tmp_path / "ours"))
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert type(back).__name__ == class_name
    assert back.model_max_length == 40
    for text in TEXTS[:60]:
        ids = reference(text)["input_ids"]
        assert back(text)["input_ids"] == ids
        assert ours.encode([text], max_tokens=None)[0].ids == ids
