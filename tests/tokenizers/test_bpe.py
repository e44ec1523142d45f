"""Byte-level and word-level BPE: ids, offsets and decoded text equal transformers'."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import CONFIG, TOKENIZER, Content, flags, write
from tests.tokenizers.making import ANGLES, assert_equal, bare, by_words, doubled, files_of
from tests.tokenizers.texts import prose, torture
from tests.tokenizers.trained import BRACKETS, END, byte_level, words
from zoo.errors import SourceError, VerificationError
from zoo.tokenizers import (
    CLS_SEP,
    CLS_SEP_SEP,
    SourceFiles,
    TextTokenizer,
    byte_level_bpe_tokenizer,
    hub_tokenizer_files,
    tokenizer_info,
)

SQUARES = {"sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
SQUARES |= {"bos": "[CLS]", "eos": "[SEP]"}
Build = Callable[[SourceFiles], Any]


def bracketed(files: SourceFiles) -> Any:
    return byte_level_bpe_tokenizer(files, roles=SQUARES, template=CLS_SEP, mask_takes_space=True)


def count(vocabulary: tuple[str, str]) -> int:
    return len(json.loads(vocabulary[0]))


MASK = {"__type": "AddedToken", "content": "<mask>", **flags(lstrip=True, special=True)}
CASES: dict[str, tuple[str, Build, Callable[[], dict[str, Content]]]] = {
    "doubled": ("roberta", doubled, lambda: files_of(byte_level())),
    "doubled, space first": (
        "roberta",
        doubled,
        lambda: files_of(byte_level(), add_prefix_space=True, model_max_length=512),
    ),
    "doubled, whole offsets": (
        "roberta",
        doubled,
        lambda: files_of(byte_level(), trim_offsets=False),
    ),
    "doubled, mask with its space": (
        "roberta",
        doubled,
        lambda: files_of(byte_level(), mask_token=MASK),
    ),
    "doubled, added tokens": (
        "roberta",
        doubled,
        lambda: {
            **files_of(byte_level(), additional_special_tokens=["<ent>"]),
            "added_tokens.json": {"<ent>": count(byte_level()), "NewYork": count(byte_level()) + 1},
            "special_tokens_map.json": {"mask_token": MASK},
        },
    ),
    "bare": ("gpt2", bare, lambda: files_of(byte_level((END,)))),
    "bare, space first": (
        "gpt2",
        bare,
        lambda: files_of(byte_level((END,)), add_prefix_space=True),
    ),
    "bare, begun": ("gpt2", bare, lambda: files_of(byte_level((END,)), add_bos_token=True)),
    "bare, begun and ended": (
        "gpt2",
        bare,
        lambda: files_of(byte_level((END,)), add_bos_token=True, add_eos_token=True),
    ),
    "bare, padded": ("gpt2", bare, lambda: files_of(byte_level((END,)), pad_token=END)),
    "words": ("openai-gpt", by_words, lambda: files_of(words())),
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return the directories of all cases, each with a copy that transformers saved."""
    from transformers import AutoTokenizer

    directories = {}
    for name, (model_type, _, files) in CASES.items():
        model = {"config.json": {"model_type": model_type}}
        directory = tmp_path_factory.mktemp("case")
        directories[name] = write(directory / "sources", {**model, **files()})
        AutoTokenizer.from_pretrained(directory / "sources").save_pretrained(directory / "stored")
        write(directory / "stored", model)
        directories[f"{name}, stored"] = directory / "stored"
        (directory / "both").mkdir()
        for path in (*directories[name].iterdir(), directory / "stored" / TOKENIZER):
            (directory / "both" / path.name).write_bytes(path.read_bytes())
        directories[f"{name}, both"] = directory / "both"
    return directories


def ours(build: Build, directory: Path) -> TextTokenizer:
    files = SourceFiles(directory)
    tokenizer = build(files)
    return TextTokenizer(tokenizer, tokenizer_info(files, tokenizer))


def forms() -> Iterator[Any]:
    """Yield the names of all directories; ``long`` but for one of each case, and all of one."""
    for name in CASES:
        for form in ("", ", stored", ", both"):
            usual = not form or name == "doubled, added tokens"
            yield pytest.param(f"{name}{form}", marks=() if usual else pytest.mark.long)


@pytest.fixture(scope="module", params=forms())
def both(request: pytest.FixtureRequest, cases: Mapping[str, Path]) -> Iterator[Any]:
    from transformers import AutoTokenizer

    name: str = request.param
    build = CASES[name.removesuffix(", stored").removesuffix(", both")][1]
    directory = cases[name]
    yield ours(build, directory), AutoTokenizer.from_pretrained(directory)


@pytest.mark.by_default("doubled, added tokens", "bare")
def test_difficult_and_real_texts(both: tuple[TextTokenizer, Any]) -> None:
    assert_equal(both, torture())
    assert_equal(both, prose(600))


@pytest.mark.by_default("bare", "doubled", "words")
def test_pairs_and_truncation(both: tuple[TextTokenizer, Any]) -> None:
    lines = torture()[::3]
    pairs = list(zip(lines, [*lines[7:], *lines[:7]], strict=True))
    assert_equal(both, pairs)
    assert_equal(both, pairs, max_tokens=17)
    assert_equal(both, lines, max_tokens=9)


@pytest.mark.by_default("bare", "doubled", "words", "doubled, added tokens")
@pytest.mark.parametrize("skip", [True, False])
def test_decoding(both: tuple[TextTokenizer, Any], skip: bool) -> None:
    tokenizer, other = both
    for encoded in tokenizer.encode([*torture(), *prose(300)], max_tokens=None):
        wanted = other.decode(encoded.ids, skip_special_tokens=skip)
        assert tokenizer.decode(encoded.ids, skip_special=skip) == wanted


@pytest.mark.parametrize("lstrip", [True, False])
def test_mask_option_of_the_files_has_precedence(tmp_path: Path, lstrip: bool) -> None:
    """The default of the family has no effect."""
    from transformers import AutoTokenizer

    mask = {"__type": "AddedToken", "content": "<mask>", **flags(lstrip=lstrip, special=True)}
    config = files_of(byte_level(), mask_token=mask)
    files = SourceFiles(write(tmp_path, {"config.json": {"model_type": "roberta"}, **config}))
    wanted = AutoTokenizer.from_pretrained(tmp_path)("a <mask> b")["input_ids"]
    for usual in (True, False):
        tokenizer = byte_level_bpe_tokenizer(
            files, roles=ANGLES, template=CLS_SEP_SEP, mask_takes_space=usual
        )
        assert tokenizer.encode("a <mask> b").ids == wanted


@pytest.mark.by_default("bare", "doubled", "words")
@pytest.mark.parametrize("name", CASES)
def test_exported_files_give_the_same_ids(
    cases: Mapping[str, Path], name: str, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    model_type, build, _ = CASES[name]
    files = SourceFiles(cases[name])
    built = build(files)
    info = tokenizer_info(files, built)
    written = hub_tokenizer_files(built.to_str().encode(), info)
    target = write(tmp_path, {"config.json": {"model_type": model_type}, **written})
    tokenizer, other = TextTokenizer(built, info), AutoTokenizer.from_pretrained(target)
    assert_equal((tokenizer, other), [*torture(), *prose(200)])
    again = ours(build, target)
    for texts in (torture(), list(zip(torture(), prose(), strict=False))):
        first, second = (t.encode(texts, max_tokens=None) for t in (tokenizer, again))
        assert [encoded.ids for encoded in first] == [encoded.ids for encoded in second]


def test_template_matches_the_original_code(tmp_path: Path) -> None:
    # transformers 5 doubles the separator of a pair, unlike in pretraining
    files = SourceFiles(write(tmp_path, files_of(byte_level(BRACKETS))))
    tokenizer = bracketed(files)
    encoding = tokenizer.encode("one", "two")
    assert [encoding.tokens[0], *encoding.tokens[-1:]] == ["[CLS]", "[SEP]"]
    assert encoding.tokens.count("[SEP]") == 2
    assert encoding.type_ids[-1] == 1 and encoding.type_ids[0] == 0
    wanted = [tokenizer.token_to_id(token) for token in ("[CLS]", "a", "[MASK]", ".", "[SEP]")]
    assert tokenizer.encode("a  [MASK].").ids == wanted


def test_default_roles_of_the_family(tmp_path: Path) -> None:
    files = SourceFiles(write(tmp_path, files_of(byte_level(), mask_token=MASK)))
    info = tokenizer_info(files, doubled(files), ANGLES)
    assert dict(info.special) == ANGLES


def test_missing_special_tokens_are_not_added(tmp_path: Path) -> None:
    files = SourceFiles(write(tmp_path, files_of(byte_level((END,)))))
    with pytest.raises(VerificationError, match=r"the vocabulary has no token <s>"):
        doubled(files)
    assert bare(files).get_vocab_size() == 1500


def test_tokenizer_json_keeps_options_without_configuration(
    cases: Mapping[str, Path], tmp_path: Path
) -> None:
    stored = (cases["doubled, space first, stored"] / TOKENIZER).read_bytes()
    files = SourceFiles(write(tmp_path, {TOKENIZER: stored, **files_of(byte_level())}))
    assert doubled(files).encode("the").tokens == ["<s>", "\u0120the", "</s>"]


BROKEN: dict[str, tuple[dict[str, Content], str]] = {
    "a merge of three": ({"merges.txt": "a b c\n"}, r"merges.txt, line 1: 'a b c' is not a pair"),
    "more merges than splits of all tokens": (
        {"merges.txt": "a b\n" * 100_000},
        r"merges.txt: number of merges is 100,000, and the file has room for at most",
    ),
    "a merge of unknown tokens": ({"merges.txt": "qqq zzz\n"}, r"merges.txt: "),
    "a word for an id": ({"vocab.json": '{"a": "b"}'}, r"vocab.json: id of the token 'a' is 'b'"),
    "one id twice": (
        {"vocab.json": '{"a": 1, "b": 1}'},
        r"'b' = 1 is also the id of 'a'",
    ),
    "a list": ({"vocab.json": "[]"}, r"vocab.json is not a JSON object"),
    "no text": ({"merges.txt": b"\xff\xfe"}, r"merges.txt is not UTF-8"),
    "a word for a flag": ({CONFIG: {"add_prefix_space": "yes"}}, r"add_prefix_space = 'yes'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_files_are_named_in_one_line(tmp_path: Path, name: str) -> None:
    changed, message = BROKEN[name]
    write(tmp_path, {**files_of(byte_level()), **changed})
    with pytest.raises(VerificationError, match=message) as caught:
        doubled(SourceFiles(tmp_path))
    assert "\n" not in str(caught.value)


def test_merges_without_vocabulary(tmp_path: Path) -> None:
    write(tmp_path, {"merges.txt": byte_level()[1]})
    with pytest.raises(SourceError, match=r"has neither tokenizer.json nor vocab.json with"):
        doubled(SourceFiles(tmp_path))
