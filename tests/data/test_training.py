"""Tokenizer training: layout of each family, determinism, and loading by transformers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from tests.data.making import paragraphs, trained
from tests.families.every import every_family
from tests.tokenizers.texts import prose, torture
from zoo.data.encoding import DocumentTokenizer
from zoo.data.tokenizer import TokenizerToTrain
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.plugins import get_family
from zoo.tokenizers import SourceFiles, hub_tokenizer_files
from zoo.tokenizers.train import train
from zoo.tokenizers.wordpiece import DEFAULTS

CASES = [
    ("bert", "wordpiece", "bert"),
    ("electra", "wordpiece", "electra"),
    ("distilbert", "wordpiece", "distilbert"),
    ("roberta", "byte-level-bpe", "roberta"),
    ("roberta", "unigram", "xlm-roberta"),
    ("gpt", "byte-level-bpe", "gpt2"),
    ("deberta", "byte-level-bpe", "deberta"),
    ("deberta", "unigram", "deberta-v2"),
    ("albert", "unigram", "albert"),
    ("t5", "unigram", "t5"),
]
TEXTS = [*prose()[5000:5600], *torture()]


def written(family: Family, kind: str, directory: Path, size: int = 800) -> Path:
    """Write the files of a trained tokenizer to a directory."""
    directory.mkdir()
    roles = family.special_tokens or DEFAULTS
    new = family.new_tokenizers[kind]
    train(kind, new, lambda: [paragraphs()], directory, size=size, unknown=roles["unk"])
    return directory


@pytest.mark.by_default("bert-wordpiece", "gpt-byte-level-bpe", "t5-unigram")
@pytest.mark.parametrize(("name", "kind", "model_type"), CASES)
def test_exported_tokenizers_give_equal_ids(
    tmp_path: Path, name: str, kind: str, model_type: str
) -> None:
    tokenizer = trained(name, kind=kind)
    for file, content in hub_tokenizer_files(tokenizer.json, tokenizer.info).items():
        (tmp_path / file).write_bytes(content)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.from_buffer(tokenizer.json)
    for text in TEXTS:
        assert ours.encode(text).ids == peer(text)["input_ids"], text
    assert peer.pad_token == tokenizer.info.special.get("pad")


@pytest.mark.by_default("gpt")
@pytest.mark.parametrize(("name", "kind", "model_type"), [c for c in CASES if c[1] != "unigram"])
def test_the_files_themselves_are_read_with_equal_ids(
    tmp_path: Path, name: str, kind: str, model_type: str
) -> None:
    family = get_family(name)
    directory = written(family, kind, tmp_path / "files")
    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    peer = transformers.AutoTokenizer.from_pretrained(directory)
    ours = family.tokenizer(SourceFiles(directory))
    for text in TEXTS:
        if family.special_tokens.get("mask", "[MASK]") not in text:  # see benchmarks/tokenization
            assert ours.encode(text).ids == peer(text)["input_ids"], text


@pytest.mark.by_default("bert", "gpt", "t5")
@pytest.mark.parametrize("name", every_family())
def test_every_family_can_have_one_of_the_size_that_is_asked_for(name: str) -> None:
    family = get_family(name)
    for kind in family.new_tokenizers:
        definition = trained(family.name, kind=kind, size=777)
        tokenizer = Tokenizer.from_buffer(definition.json)
        new = family.new_tokenizers[kind]
        assert tokenizer.get_vocab_size() == 777
        assert [tokenizer.id_to_token(k) for k in range(len(new.first))] == list(new.first)
        last = [*new.last, *(f"<extra_id_{k}>" for k in reversed(range(new.sentinels)))]
        ids = [tokenizer.token_to_id(token) for token in last]
        assert ids == list(range(777 - len(last), 777))
        special = {t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special}
        if kind != "words":
            added = {*new.first, *last}
            # a mask may be a token of the objective alone
            roles = {t for role, t in family.special_tokens.items() if role != "mask"} & added
            sentinels = {token for token in last if token.startswith("<extra_id_")}
            assert roles | sentinels <= special <= added


def test_sentinels_are_those_of_the_published_models() -> None:
    definition = trained("t5")
    tokenizer = Tokenizer.from_buffer(definition.json)
    assert [tokenizer.token_to_id(t) for t in ("<pad>", "</s>", "<unk>")] == [0, 1, 2]
    assert tokenizer.token_to_id("<extra_id_0>") == 799
    ids = tokenizer.encode("Fill <extra_id_0> in <extra_id_1> now").ids
    assert [i for i in ids if i >= 700] == [799, 798]
    assert ids[-1] == 1


def test_words_are_in_the_order_of_their_frequency() -> None:
    from collections import Counter

    counts = Counter(word for text in paragraphs() for word in text.split())
    wanted = sorted(counts, key=lambda word: (-counts[word], word))
    vocabulary = Tokenizer.from_buffer(trained("elmo", size=300).json).get_vocab()
    words = sorted(vocabulary, key=lambda word: vocabulary[word])
    assert words[:3] == ["<S>", "</S>", "<UNK>"]
    assert words[3:] == wanted[:297]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wordpiece", "byte-level-bpe", "unigram", "words"])
def test_training_is_the_same_every_time(kind: str) -> None:
    """Files are equal across processes with other hash seeds and numbers of threads."""
    name = {"wordpiece": "bert", "unigram": "t5", "words": "elmo"}.get(kind, "roberta")
    program = (
        "from tests.data.making import trained\n"
        f"import hashlib; print(hashlib.sha256(trained({name!r}, 1500, {kind!r}).json).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"RAYON_NUM_THREADS": threads, "PATH": ""},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "2")
    ]
    assert len(set(runs)) == 1


NORMALIZING = [
    ("bert", "wordpiece"),
    ("mpnet", "wordpiece"),
    ("xlm", "wordpiece"),
    ("roberta", "byte-level-bpe"),
    ("gpt", "byte-level-bpe"),
    ("roberta", "unigram"),
    ("albert", "unigram"),
    ("xlnet", "unigram"),
    ("t5", "unigram"),
]


@pytest.mark.by_default("bert")
@pytest.mark.parametrize(("name", "kind"), NORMALIZING)
def test_case_and_accents_are_kept_unless_it_is_asked_for(name: str, kind: str) -> None:
    def reread(**options: Any) -> str:
        definition = TokenizerToTrain.for_family(
            get_family(name), vocab_size=800, tokenizer_type=kind, **options
        ).make(lambda: [[*paragraphs(), *["Ich fühl mich. Fühl! fuhl Fuhl"] * 20]])
        tokenizer = Tokenizer.from_buffer(definition.json)
        ids = tokenizer.encode("Er fühl", add_special_tokens=False).ids
        return str(tokenizer.decode(ids)).strip()

    assert reread() == "Er fühl"
    assert reread(lowercase=True) == "er fuhl"
    assert reread(lowercase=True, strip_accents=False) == "er fühl"
    assert reread(strip_accents=True) == "Er fuhl"


def test_a_tokenizer_of_words_keeps_them() -> None:
    with pytest.raises(UsageError, match="a tokenizer of words keeps case and accents"):
        TokenizerToTrain.for_family(get_family("elmo"), vocab_size=100, lowercase=True)


@pytest.mark.by_default("gpt-byte-level-bpe")
@pytest.mark.parametrize(("name", "kind"), NORMALIZING)
def test_exports_of_normalizing_tokenizers_give_equal_ids(
    tmp_path: Path, name: str, kind: str
) -> None:
    definition = TokenizerToTrain.for_family(
        get_family(name), vocab_size=800, tokenizer_type=kind, lowercase=True
    ).make(lambda: [paragraphs()])
    for file, content in hub_tokenizer_files(definition.json, definition.info).items():
        (tmp_path / file).write_bytes(content)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.from_buffer(definition.json)
    for text in TEXTS:
        assert ours.encode(text).ids == peer(text)["input_ids"], text


def test_only_the_most_frequent_characters_are_in_the_alphabet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zoo.tokenizers.train.MAX_CHARACTERS", 20)
    texts = ["abcdefghijklmnopqrs tuv" * 50, "\u4e2d\u6587 xyz"]
    for name in ("bert", "t5"):
        tokenizer = TokenizerToTrain.for_family(get_family(name), vocab_size=160).make(
            lambda: [texts]
        )
        letters = {t for t in Tokenizer.from_buffer(tokenizer.json).get_vocab() if len(t) == 1}
        assert "a" in letters
        assert not letters & set("\u4e2d\u6587xyz")


def test_a_text_full_of_special_tokens_teaches_nothing_about_them() -> None:
    texts = ["<s> <s> <s><mask></s> [MASK] [MASK] word " * 50, *paragraphs()[:5]]
    for name, kind in (("roberta", "byte-level-bpe"), ("bert", "wordpiece"), ("t5", "unigram")):
        definition = TokenizerToTrain.for_family(
            get_family(name), vocab_size=500, tokenizer_type=kind
        ).make(lambda: [texts])
        tokenizer = Tokenizer.from_buffer(definition.json)
        ids = set(
            DocumentTokenizer(definition.json, definition.info, "rule", "uint16")
            .encode(texts[:1])
            .tokens
        )
        marks = {token for role, token in definition.info.special.items() if role != "unk"}
        assert not ids & {tokenizer.token_to_id(mark) for mark in marks}
