"""Precedence of tokenizer files, and errors that name the file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import (
    CONFIG,
    TOKENIZER,
    Content,
    cased,
    preserve_case,
    stored,
    uncased,
    write,
)
from zoo.errors import SourceError, VerificationError
from zoo.tokenizers import (
    TOKENIZER_FILES,
    SourceFiles,
    check_vocabulary,
    has_tokenizer,
    tokenizer_info,
    wordpiece_tokenizer,
)
from zoo.tokenizers.info import TokenizerInfo

SMALL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\nA\n"


def tokens(directory: Path, text: str) -> list[str]:
    pieces: list[str] = wordpiece_tokenizer(SourceFiles(directory)).encode(text).tokens
    return pieces


def test_the_working_directory_has_a_path() -> None:
    assert SourceFiles(Path()).path(".").is_dir()  # which modules of sentence encoders are in


def test_import_loads_no_library() -> None:
    heavy = ("tokenizers", "numpy", "torch")
    code = f"import sys, zoo.tokenizers; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_files_with_a_vocabulary(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "{}"})
    alone = name in ("tokenizer.json", "vocab.txt") or name.endswith(".model")
    assert has_tokenizer(SourceFiles(tmp_path)) == alone


def test_vocabulary_in_two_files_needs_both(tmp_path: Path) -> None:
    write(tmp_path, {"vocab.json": "{}", "merges.txt": ""})
    assert has_tokenizer(SourceFiles(tmp_path))


CASING: dict[str, tuple[dict[str, Content], bool]] = {
    "capitals": ({"vocab.txt": SMALL}, True),
    "capitals, kept": ({"vocab.txt": SMALL, CONFIG: {"do_lower_case": False}}, False),
    "capitals, given up": ({"vocab.txt": SMALL, CONFIG: {"do_lower_case": True}}, False),
    "no capitals": ({"vocab.txt": SMALL.replace("A\n", "")}, False),
    "a published list without capitals": ({"vocab.txt": uncased()}, False),
}


@pytest.mark.parametrize("case", CASING)
def test_warning_for_cased_vocabulary(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content, warned = CASING[case]
    with caplog.at_level("INFO", "zoo"):
        wordpiece_tokenizer(SourceFiles(write(tmp_path, content)))
    expected = f"though 1 of the tokens in {tmp_path / 'vocab.txt'} have capitals"
    assert (expected in caplog.text) == warned == bool(caplog.records)


def test_tokenizer_json_has_precedence(tmp_path: Path) -> None:
    write(tmp_path, {TOKENIZER: stored(preserve_case), "vocab.txt": uncased()})
    assert tokens(tmp_path, "hello Hello") == ["[CLS]", "hello", "[UNK]", "[SEP]"]


def test_stored_normalizer_is_kept(tmp_path: Path) -> None:
    # transformers would use the defaults of its class, and lower-case a cased model
    files: dict[str, Content] = {TOKENIZER: stored(preserve_case), CONFIG: {"max_len": 512}}
    write(tmp_path, files)
    normalizer = wordpiece_tokenizer(SourceFiles(tmp_path)).normalizer
    assert normalizer is not None and normalizer.normalize_str("Été") == "Été"


def test_only_truncation_and_padding_are_removed(tmp_path: Path) -> None:
    import json

    before = stored()
    assert before["truncation"] and before["padding"]
    write(tmp_path, {TOKENIZER: before})
    after = json.loads(wordpiece_tokenizer(SourceFiles(tmp_path)).to_str())
    before |= {"truncation": None, "padding": None}
    before["decoder"]["cleanup"] = after["decoder"]["cleanup"]
    assert after == before


def test_other_kinds_are_unchanged(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"Ä": 0, "?": 1}, unk_token="?")).save(str(tmp_path / TOKENIZER))
    write(tmp_path, {CONFIG: {"do_lower_case": True}})
    assert tokens(tmp_path, "Ä") == ["Ä"]


def test_stored_template_is_kept(tmp_path: Path) -> None:
    def rename(value: dict[str, Any]) -> None:
        words = value["model"]["vocab"]
        words["<s>"], words["</s>"] = words.pop("[CLS]"), words.pop("[SEP]")
        value["added_tokens"] = []
        value["post_processor"] = {
            "type": "BertProcessing",
            "sep": ["</s>", 102],
            "cls": ["<s>", 101],
        }

    write(tmp_path, {TOKENIZER: stored(rename)})
    assert tokens(tmp_path, "hello") == ["<s>", "hello", "</s>"]


def test_default_mask_is_not_added(tmp_path: Path) -> None:
    write(tmp_path, {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\na\n"})
    files = SourceFiles(tmp_path)
    tokenizer = wordpiece_tokenizer(files)
    check_vocabulary(tokenizer, 4, str(tmp_path))
    roles = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
    assert tokenizer_info(files, tokenizer) == TokenizerInfo(special=roles)


def test_tokenizer_that_exceeds_the_embedding(tmp_path: Path) -> None:
    write(tmp_path, {"vocab.txt": SMALL, "added_tokens.json": {"<ent>": 9}})
    tokenizer = wordpiece_tokenizer(SourceFiles(tmp_path))
    check_vocabulary(tokenizer, 10, "here")
    with pytest.raises(VerificationError, match=r"here: no row .* has 9, is for '<ent>' \(id 9\)"):
        check_vocabulary(tokenizer, 9, "here")


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, None),
        ({"model_max_length": 512}, 512),
        ({"model_max_length": 512.0}, 512),
        ({"max_len": 256}, 256),
        ({"model_max_length": int(1e30)}, None),
        ({"model_max_length": 1e30}, None),
        ({"model_max_length": None}, None),
    ],
)
def test_maximum_length(tmp_path: Path, config: dict[str, Any], wanted: int | None) -> None:
    files = SourceFiles(write(tmp_path, {"vocab.txt": SMALL, CONFIG: config}))
    assert tokenizer_info(files, wordpiece_tokenizer(files)).max_tokens == wanted


def without(token: str) -> str:
    return SMALL.replace(f"{token}\n", "")


def broken_template(value: dict[str, Any]) -> None:
    del value["post_processor"]["special_tokens"]["[SEP]"]


def shifted_template(value: dict[str, Any]) -> None:
    value["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [7]


def shifted_end(value: dict[str, Any]) -> None:
    ends = {"type": "BertProcessing", "sep": ["[SEP]", 8], "cls": ["[CLS]", 101]}
    value["post_processor"] = {"type": "Sequence", "processors": [ends]}


PART = {"content": "x", "lstrip": "yes"}
BAD: dict[str, tuple[dict[str, Content], str]] = {
    "no [UNK]": ({"vocab.txt": without("[UNK]")}, r"vocab.txt has no token \[UNK\]"),
    "no [CLS]": ({"vocab.txt": without("[CLS]")}, r"vocab.txt has no token \[CLS\]"),
    "no [SEP]": ({"vocab.txt": without("[SEP]")}, r"vocab.txt has no token \[SEP\]"),
    "an empty vocabulary": ({"vocab.txt": ""}, r"vocab.txt has no token \[UNK\]"),
    "a vocabulary that is no text": ({"vocab.txt": b"\xff\xfe\x00"}, "vocab.txt is not UTF-8"),
    "an unknown token of another name": (
        {"vocab.txt": SMALL, CONFIG: {"unk_token": "<unk>"}},
        "vocab.txt has no token <unk>",
    ),
    "a stored vocabulary without [UNK]": (
        {TOKENIZER: stored(lambda t: t["model"].update(unk_token="<unk>"))},
        "tokenizer.json has no token <unk>",
    ),
    "two unknown tokens": (
        {TOKENIZER: stored(), CONFIG: {"unk_token": "the"}},
        r"tokenizer.json: the unknown token is \[UNK\], and the in tokenizer_config.json",
    ),
    "a stored vocabulary without ends": (
        {
            TOKENIZER: stored(lambda t: t.update(post_processor=None)),
            CONFIG: {"cls_token": "<s>"},
        },
        "tokenizer.json has no token <s>",
    ),
    "ends without an id": (
        {TOKENIZER: stored(broken_template)},
        r"tokenizer.json: its post_processor gives '\[SEP\]' the id None",
    ),
    "ends with another id": (
        {TOKENIZER: stored(shifted_template)},
        r"gives '\[CLS\]' the id 7, and its vocabulary the id 101",
    ),
    "ends of the older kind with another id": (
        {TOKENIZER: stored(shifted_end)},
        r"gives '\[SEP\]' the id 8, and its vocabulary the id 102",
    ),
    "words split by a dictionary": (
        {"vocab.txt": SMALL, CONFIG: {"word_tokenizer_type": "sudachi"}},
        "tokenizer_config.json: word_tokenizer_type = 'sudachi' is not implemented",
    ),
    "characters for subwords": (
        {"vocab.txt": SMALL, CONFIG: {"subword_tokenizer_type": "character"}},
        "tokenizer_config.json: subword_tokenizer_type = 'character' is not implemented",
    ),
    "tokenizer.json is not a JSON": ({TOKENIZER: "{"}, "tokenizer.json is not JSON"),
    "tokenizer.json is empty": ({TOKENIZER: {}}, "tokenizer.json has no model"),
    "tokenizer.json is of the future": (
        {TOKENIZER: stored(lambda t: t.update(version="9"))},
        "tokenizer.json: .*version",
    ),
    "tokenizer.json is no text": ({TOKENIZER: b"\xff"}, "tokenizer.json is not UTF-8"),
    "a configuration that is not a JSON": (
        {"vocab.txt": SMALL, CONFIG: "no"},
        "tokenizer_config.json is not JSON",
    ),
    "a configuration nested without end": (
        {"vocab.txt": SMALL, CONFIG: "[" * 100_000},
        "tokenizer_config.json: nesting of JSON is 100,000",
    ),
    "a configuration that is a list": (
        {"vocab.txt": SMALL, CONFIG: []},
        "tokenizer_config.json is not a JSON object",
    ),
    "an option of another type": (
        {"vocab.txt": SMALL, CONFIG: {"do_lower_case": "false"}},
        "tokenizer_config.json: do_lower_case = 'false'",
    ),
    "an option that must not be null": (
        {"vocab.txt": SMALL, CONFIG: {"do_lower_case": None}},
        "tokenizer_config.json: do_lower_case = None",
    ),
    "a length that is none": (
        {"vocab.txt": SMALL, CONFIG: {"model_max_length": "long"}},
        "tokenizer_config.json: model_max_length = 'long'",
    ),
    "a token without content": (
        {"vocab.txt": SMALL, CONFIG: {"mask_token": {"lstrip": True}}},
        "mask_token = .* is not a token",
    ),
    "a flag of another type": (
        {"vocab.txt": SMALL, CONFIG: {"mask_token": PART}},
        "mask_token = .* neither true nor false",
    ),
    "extra tokens that are no list": (
        {"vocab.txt": SMALL, CONFIG: {"additional_special_tokens": 7}},
        "additional_special_tokens = 7 is not a list",
    ),
    "an extra token that is not a token": (
        {"vocab.txt": SMALL, CONFIG: {"extra_special_tokens": [7]}},
        "extra_special_tokens = 7 is not a token",
    ),
    "a decoder that is a list": (
        {"vocab.txt": SMALL, CONFIG: {"added_tokens_decoder": ["a"]}},
        "added_tokens_decoder is not an object",
    ),
    "a decoder with a key that is not an id": (
        {"vocab.txt": SMALL, CONFIG: {"added_tokens_decoder": {"-1": PART}}},
        "added_tokens_decoder has the key '-1'",
    ),
    "an added token with two ids": (
        {"vocab.txt": SMALL, "added_tokens.json": {"a": 7}},
        "gives 'a' the id 7, and its vocabulary the id 5",
    ),
    "an added token beyond a gap": (
        {"vocab.txt": SMALL, "added_tokens.json": {"<ent>": 20}},
        "gives '<ent>' the id 20, and its vocabulary the id 9",
    ),
    "an added token without an id": (
        {"vocab.txt": SMALL, "added_tokens.json": {"<ent>": "9"}},
        "added_tokens.json: '<ent>' = '9'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files_are_one_line(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    files = SourceFiles(write(tmp_path, content))
    with pytest.raises(VerificationError, match=message) as caught:
        tokenizer_info(files, wordpiece_tokenizer(files))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_missing_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"merges.txt: No such file"):
        SourceFiles(tmp_path).text("merges.txt")


def test_unchecked_files_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"vocab.txt": SMALL, CONFIG: {"do_lower_case": False}})
    files = SourceFiles(tmp_path, ["vocab.txt"])
    assert wordpiece_tokenizer(files).encode("A").tokens == ["[CLS]", "a", "[SEP]"]
    with pytest.raises(SourceError, match="is not one of the requested files"):
        files.text(CONFIG)


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "a/../../b", "a\\b", ""])
def test_names_outside_of_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(VerificationError, match="outside of its directory"):
        SourceFiles(tmp_path).has(name)


def test_vocabularies_of_these_tests() -> None:
    assert "Hello" not in uncased().split("\n")
    assert {"The", "Python", "##é", "中"} <= set(cased().split("\n"))


def test_other_tokenizer_files_are_a_source_error(tmp_path: Path) -> None:
    files = SourceFiles(write(tmp_path, {"vocab.json": "{}", "merges.txt": ""}))
    with pytest.raises(SourceError, match=r"neither tokenizer.json nor vocab.txt; .*of a kind"):
        wordpiece_tokenizer(files)
