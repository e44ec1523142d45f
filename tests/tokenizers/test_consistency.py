"""``tokenizer.json`` and the vocabulary files of a directory must agree."""

import importlib
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tokenizers.directories import TOKENIZER, stored, uncased, write
from tests.tokenizers.making import ANGLES, CASES, bare, build, by_words, doubled, files_of
from tests.tokenizers.trained import END, byte_level, words
from zoo.errors import VerificationError
from zoo.tokenizers import SourceFiles, sentencepiece_tokenizer, wordpiece_tokenizer

DIFFER = r"tokenizer.json and {} differ on .*: \[.*\] and \[.*\] from token \d+ on"


def swapped(vocabulary: str, *tokens: str) -> str:
    """Return a ``vocab.json`` with the ids of two tokens exchanged."""
    ids = json.loads(vocabulary)
    first, second = tokens
    ids[first], ids[second] = ids[second], ids[first]
    return json.dumps(ids)


@pytest.mark.parametrize(
    ("make", "tokens", "builder"),
    [
        (byte_level, ("e", "t"), doubled),
        (lambda: byte_level((END,)), ("e", "t"), bare),
        (words, ("the</w>", "in</w>"), by_words),
    ],
)
def test_different_ids_are_an_error(
    tmp_path: Path, make: Any, tokens: tuple[str, str], builder: Any
) -> None:
    files = SourceFiles(write(tmp_path, files_of(make())))
    write(tmp_path, {TOKENIZER: builder(files).to_str()})
    assert builder(files).get_vocab() == json.loads(make()[0])
    write(tmp_path, {"vocab.json": swapped(make()[0], *tokens)})
    with pytest.raises(VerificationError, match=DIFFER.format("merges.txt")):
        builder(files)


def test_different_merges_are_an_error(tmp_path: Path) -> None:
    files = SourceFiles(write(tmp_path, files_of(byte_level())))
    write(tmp_path, {TOKENIZER: doubled(files).to_str()})
    merges = byte_level()[1].split("\n")
    write(tmp_path, {"merges.txt": "\n".join([merges[0], *reversed(merges[1:])])})
    with pytest.raises(VerificationError, match=DIFFER.format("merges.txt")):
        doubled(files)


@pytest.mark.parametrize("name", CASES)
def test_different_pieces_are_an_error(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    write(tmp_path, {case.file: case.content()})
    value = json.loads(build(case, tmp_path).to_str())
    write(tmp_path, {TOKENIZER: value})
    again = json.loads(build(case, tmp_path).to_str())
    # scores are not restored bit for bit
    assert [token for token, _ in again["model"].pop("vocab")] == [
        token for token, _ in value["model"]["vocab"]
    ]
    assert again == {**value, "model": again["model"]}
    scores = value["model"]["vocab"]
    usual = next(i for i, (text, _) in enumerate(scores) if text == "\u2581the")
    scores[usual][1] = -50.0
    write(tmp_path, {TOKENIZER: value})
    with pytest.raises(VerificationError, match=DIFFER.format(case.file)):
        build(case, tmp_path)


def test_different_normalization_is_an_error(tmp_path: Path) -> None:
    case = CASES["moved by one"]
    write(tmp_path, {case.file: case.content()})
    value = json.loads(build(case, tmp_path).to_str())
    value["normalizer"] = {"type": "Lowercase"}
    write(tmp_path, {TOKENIZER: value})
    with pytest.raises(VerificationError, match=DIFFER.format(case.file)):
        build(case, tmp_path)


CONVERTERS = {
    "moved by one": "XLMRoberta",
    "moved by four": "Camembert",
    "sentinels": "T5",
    "spelled": "Albert",
    "bracketed": "DebertaV2",
}


def published(name: str, file: Path) -> dict[str, Any]:
    """Return the ``tokenizer.json`` that older transformers versions made of a model file."""
    slow = SimpleNamespace(
        vocab_file=str(file),
        split_by_punct=False,
        _extra_ids=100,
        keep_accents=False,
        do_lower_case=name == "spelled",
        convert_tokens_to_ids=lambda token: {"<s>": 0, "</s>": 2}.get(token, 1),
    )
    converters = importlib.import_module("transformers.convert_slow_tokenizer")
    made = getattr(converters, f"{CONVERTERS[name]}Converter")(slow).converted()
    value: dict[str, Any] = json.loads(made.to_str())
    special = [token for token in value["added_tokens"] if token["special"]]
    return {**value, "post_processor": None, "added_tokens": special}


@pytest.mark.parametrize("name", CASES)
def test_published_pairs_of_files_agree(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    write(tmp_path, {case.file: case.content()})
    before = build(case, tmp_path)
    write(tmp_path, {TOKENIZER: published(name, tmp_path / case.file)})
    after = build(case, tmp_path)
    assert {"[MASK]": 700, **after.get_vocab()} == {"[MASK]": 700, **before.get_vocab()}
    assert after.to_str() != before.to_str()


def test_vocabulary_file_agrees_with_tokenizer_json(tmp_path: Path) -> None:
    files = SourceFiles(write(tmp_path, {TOKENIZER: stored(), "vocab.txt": uncased()}))
    assert wordpiece_tokenizer(files).encode("hello").tokens == ["[CLS]", "hello", "[SEP]"]
    lines = uncased().split("\n")
    lines[1000:1100] = reversed(lines[1000:1100])
    write(tmp_path, {"vocab.txt": "\n".join(lines)})
    with pytest.raises(VerificationError, match=DIFFER.format("vocab.txt")):
        wordpiece_tokenizer(files)


def test_comparison_is_fast(tmp_path: Path) -> None:
    files = SourceFiles(write(tmp_path, files_of(byte_level())))
    alone = seconds(files)
    write(tmp_path, {TOKENIZER: doubled(files).to_str()})
    assert seconds(files) - alone < 0.3


def seconds(files: SourceFiles) -> float:
    def once() -> float:
        start = time.perf_counter()
        doubled(files)
        return time.perf_counter() - start

    return min(once() for _ in range(3))


def test_a_stored_tokenizer_alone_is_not_compared(tmp_path: Path) -> None:
    case = CASES["moved by one"]
    write(tmp_path / "a", {case.file: case.content()})
    written = build(case, tmp_path / "a").to_str()
    write(tmp_path / "b", {TOKENIZER: written})
    files = SourceFiles(tmp_path / "b")
    assert sentencepiece_tokenizer(files, roles=ANGLES).get_vocab_size() == 702
