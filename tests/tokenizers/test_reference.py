"""Token ids, offsets, type ids, decoded text and truncation equal transformers'."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.tokenizers.directories import everything, from_stored, write
from tests.tokenizers.texts import prose, torture
from zoo.tokenizers import SourceFiles, TextTokenizer, tokenizer_info, wordpiece_tokenizer
from zoo.tokenizers.tokenizer import Text

MODEL = {"model_type": "bert", "vocab_size": 30522}


@pytest.fixture(scope="module", params=sorted(everything()))
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TextTokenizer, Any]]:
    """Return the zoo's and transformers' tokenizers of one directory."""
    files = {"config.json": MODEL, **everything()[request.param]}
    yield pair(write(tmp_path_factory.mktemp("tokenizer"), files))


def pair(directory: Path) -> tuple[TextTokenizer, Any]:
    from transformers import AutoTokenizer

    return ours(directory), AutoTokenizer.from_pretrained(directory)


def ours(directory: Path) -> TextTokenizer:
    files = SourceFiles(directory)
    tokenizer = wordpiece_tokenizer(files)
    return TextTokenizer(tokenizer, tokenizer_info(files, tokenizer))


def reference(tokenizer: Any, texts: Sequence[Text], **options: Any) -> list[dict[str, Any]]:
    extra = ("offsets_mapping", "special_tokens_mask", "token_type_ids")
    options |= {f"return_{name}": True for name in extra}
    columns = tokenizer(list(texts), **options)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def assert_equal(
    tokenizers: tuple[TextTokenizer, Any], texts: Sequence[Text], max_tokens: int | None = None
) -> None:
    tokenizer, other = tokenizers
    options = {} if max_tokens is None else {"max_length": max_tokens, "truncation": True}
    encodings = tokenizer.encode(texts, max_tokens=max_tokens)
    for text, mine, wanted in zip(
        texts, encodings, reference(other, texts, **options), strict=True
    ):
        assert mine.ids == wanted["input_ids"], repr(text)
        assert mine.type_ids == wanted["token_type_ids"], repr(text)
        assert mine.special == list(map(bool, wanted["special_tokens_mask"])), repr(text)
        assert mine.offsets == list(map(tuple, wanted["offset_mapping"])), repr(text)


def test_difficult_texts(both: tuple[TextTokenizer, Any]) -> None:
    assert_equal(both, torture())
    assert_equal(both, ["\n".join(torture())])


def test_real_text(both: tuple[TextTokenizer, Any]) -> None:
    assert_equal(both, prose(600))


def test_pairs(both: tuple[TextTokenizer, Any]) -> None:
    lines = torture()
    pairs = list(zip(lines, [*lines[7:], *lines[:7]], strict=True))
    assert_equal(both, pairs)
    assert_equal(both, pairs, max_tokens=17)


@pytest.mark.parametrize("max_tokens", [3, 9, 512])
def test_truncation(both: tuple[TextTokenizer, Any], max_tokens: int) -> None:
    texts = [*torture(), "\n".join(torture())]
    assert_equal(both, texts, max_tokens)
    whole = both[0].encode(texts, max_tokens=None)
    cut = both[0].encode(texts, max_tokens=max_tokens)
    assert [c.n + c.truncated for c in cut] == [w.n for w in whole]
    assert [w.truncated for w in whole] == [0] * len(whole)
    assert sum(c.truncated for c in cut) > 0


@pytest.mark.parametrize("skip", [True, False])
def test_decoding(both: tuple[TextTokenizer, Any], skip: bool) -> None:
    tokenizer, other = both
    for encoded in tokenizer.encode([*torture(), *prose(500)], max_tokens=None):
        wanted = other.decode(encoded.ids, skip_special_tokens=skip)
        assert tokenizer.decode(encoded.ids, skip_special=skip) == wanted


def test_decoding_of_arbitrary_ids(both: tuple[TextTokenizer, Any]) -> None:
    draw, size = random.Random(0), len(both[1])
    for _ in range(300):
        ids = [draw.randrange(size) for _ in range(draw.randrange(20))]
        assert both[0].decode(ids) == both[1].decode(ids, skip_special_tokens=True)


def test_special_tokens(both: tuple[TextTokenizer, Any]) -> None:
    tokenizer, other = both
    for role, token in tokenizer.info.special.items():
        assert tokenizer.token_id(token) == getattr(other, f"{role}_token_id") or (
            # a class without options has no default special tokens
            type(other).__name__ == "TokenizersBackend" and getattr(other, f"{role}_token") is None
        )
    assert set(tokenizer.info.special) == {"pad", "unk", "cls", "sep", "mask"}
    assert tokenizer.mask_id == tokenizer.token_id(tokenizer.info.special["mask"])


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[TextTokenizer, Any]:
    files = {"config.json": MODEL, **from_stored()["as published"]}
    return pair(write(tmp_path_factory.mktemp("published"), files))


def test_long_real_text(published: tuple[TextTokenizer, Any]) -> None:
    assert_equal(published, prose())


anything = st.text(st.characters(exclude_categories=["Cs"]))
pieces = st.sampled_from(
    ["[MASK]", "é", "e\u0301", " ", "\u200d", "中", "😀", "\x00", "a" * 99, "##"]
)
texts = st.lists(anything | pieces, max_size=6).map("".join)
unhurried = settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@unhurried
@given(text=texts)
def test_any_text(published: tuple[TextTokenizer, Any], text: str) -> None:
    assert_equal(published, [text])


@unhurried
@given(first=st.integers(0, 12), second=st.integers(0, 12), max_tokens=st.integers(4, 16))
@example(first=12, second=3, max_tokens=6)
@example(first=3, second=3, max_tokens=6)
def test_longer_text_is_truncated_first(
    published: tuple[TextTokenizer, Any], first: int, second: int, max_tokens: int
) -> None:
    assert_equal(published, [("a " * first, "b " * second)], max_tokens)
