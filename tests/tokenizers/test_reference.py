"""Token ids, offsets, type ids, decoded text and truncation equal transformers'."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.tokenizers.directories import everything, from_stored, write
from tests.tokenizers.making import MODEL, assert_equal, ours, texts
from tests.tokenizers.texts import prose, torture
from zoo.tokenizers import TextTokenizer

LONG = pytest.mark.long


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


def test_difficult_texts(both: tuple[TextTokenizer, Any]) -> None:
    assert_equal(both, torture())
    assert_equal(both, ["\n".join(torture())])


@pytest.mark.by_default("as published", "vocabulary alone", "vocabulary, cased")
def test_real_text(both: tuple[TextTokenizer, Any]) -> None:
    assert_equal(both, prose(600))


@pytest.mark.by_default("as published", "stored alone", "vocabulary alone", "vocabulary, cased")
def test_pairs(both: tuple[TextTokenizer, Any]) -> None:
    lines = torture()
    pairs = list(zip(lines, [*lines[7:], *lines[:7]], strict=True))
    assert_equal(both, pairs)
    assert_equal(both, pairs, max_tokens=17)


# what is cut does not depend on the tokenizer
@pytest.mark.by_default("as published", "stored alone", "vocabulary alone")
@pytest.mark.parametrize(
    "max_tokens", [pytest.param(3, marks=LONG), 9, pytest.param(512, marks=LONG)]
)
def test_truncation(both: tuple[TextTokenizer, Any], max_tokens: int) -> None:
    texts = [*torture(), "\n".join(torture())]
    assert_equal(both, texts, max_tokens)
    whole = both[0].encode(texts, max_tokens=None)
    cut = both[0].encode(texts, max_tokens=max_tokens)
    assert [c.n + c.truncated for c in cut] == [w.n for w in whole]
    assert [w.truncated for w in whole] == [0] * len(whole)
    assert sum(c.truncated for c in cut) > 0


@pytest.mark.by_default(
    "as published", "stored, clean-up", "stored, no ends and no decoder", "vocabulary, cased"
)
@pytest.mark.parametrize("skip", [True, pytest.param(False, marks=LONG)])
def test_decoding(both: tuple[TextTokenizer, Any], skip: bool) -> None:
    tokenizer, other = both
    for encoded in tokenizer.encode([*torture(), *prose(500)], max_tokens=None):
        wanted = other.decode(encoded.ids, skip_special_tokens=skip)
        assert tokenizer.decode(encoded.ids, skip_special=skip) == wanted


@pytest.mark.by_default("as published", "stored, added tokens", "vocabulary, cased")
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


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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
