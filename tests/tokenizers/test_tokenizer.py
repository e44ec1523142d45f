"""The tokenizer class: encoding, padding, truncation, decoding."""

from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import from_stored, write
from tests.tokenizers.making import ours
from zoo.checkpoint import Checkpoint, Manifest, ModelFile, load_text_tokenizer
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.plugins import get_family
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer import Text


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return ours(write(tmp_path_factory.mktemp("text"), from_stored()["as published"]))


def test_a_prompt_is_not_ended(tokenizer: TextTokenizer) -> None:
    texts: list[Text] = ["Hello, world!", ("one", "two"), ""]
    whole = tokenizer.encode(texts, max_tokens=None)
    prompts = tokenizer.encode_prompts(texts, max_tokens=None)
    assert [[*prompt.ids, 102] for prompt in prompts[:2]] == [text.ids for text in whole[:2]]
    assert prompts[0].sequence_ids == [None, 0, 0, 0, 0] and prompts[0].truncated == 0
    assert prompts[2].ids == []
    (cut,) = tokenizer.encode_prompts(texts[:1], max_tokens=4)
    assert cut.ids == whole[0].ids[:4] and cut.truncated == 1
    with pytest.raises(UsageError, match="1 tokens leave no room for text: 1 are special tokens"):
        tokenizer.encode_prompts(texts[:1], max_tokens=1)


def checkpoint(directory: Path, info: TokenizerInfo | None) -> Checkpoint:
    family = get_family("bert")
    model = ModelFile(zoo=1, family="bert", head="none", config={}, tokenizer=info)
    manifest = Manifest(zoo=1, created_by={}, files={})
    return Checkpoint(directory, model, manifest, family, family.sizes()["tiny"])


def test_checkpoint_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"text tasks need; `zoo convert \.\.\. --tokenizer REF`"):
        load_text_tokenizer(checkpoint(tmp_path, None))


def test_a_checkpoint_with_a_tokenizer(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer._tokenizer.to_str(), "utf-8")
    loaded = load_text_tokenizer(checkpoint(tmp_path, tokenizer.info))
    texts: list[Text] = ["Hello, world!", ("one", "two")]
    mine, theirs = (instance.encode(texts, max_tokens=None) for instance in (loaded, tokenizer))
    assert [e.ids for e in mine] == [e.ids for e in theirs]
    assert loaded.max_tokens == 512


def test_missing_or_damaged_tokenizer(tmp_path: Path) -> None:
    described = checkpoint(tmp_path, TokenizerInfo(special={}))
    with pytest.raises(SourceError, match=r"tokenizer.json: No such file"):
        load_text_tokenizer(described)
    (tmp_path / "tokenizer.json").write_text("{", "utf-8")
    with pytest.raises(VerificationError, match=r"tokenizer.json is not JSON"):
        load_text_tokenizer(described)


def test_special_tokens_by_role(tokenizer: TextTokenizer) -> None:
    assert (tokenizer.pad_id, tokenizer.mask_id, tokenizer.mask_token) == (0, 103, "[MASK]")
    assert tokenizer.token_id("[SEP]") == 102 and tokenizer.token(102) == "[SEP]"
    assert tokenizer.token_id("no such token") is None
    with pytest.raises(UsageError, match="no token has the id 999999"):
        tokenizer.token(999_999)


def test_missing_roles(tokenizer: TextTokenizer) -> None:
    bare = TextTokenizer(tokenizer._tokenizer, TokenizerInfo(special={}))
    assert (bare.pad_id, bare.mask_id, bare.mask_token) == (0, None, None)


def test_mask_in_the_text_is_not_special(tokenizer: TextTokenizer) -> None:
    (encoding,) = tokenizer.encode(["a [MASK]"], max_tokens=None)
    assert encoding.special == [True, False, False, True]
    assert encoding.offsets == [(0, 0), (0, 1), (2, 8), (0, 0)]


def test_offsets_count_characters(tokenizer: TextTokenizer) -> None:
    text = "x\u200b 👨‍👩‍👧 E\u0301te\u0301 中文"
    (encoding,) = tokenizer.encode([text], max_tokens=None)
    words = [text[start:end] for start, end in encoding.offsets if end > start]
    assert words[0] == "x" and words[-2:] == ["中", "文"] and words[2] == "E\u0301t"


def test_encoding_without_offsets(tokenizer: TextTokenizer) -> None:
    texts: list[Text] = ["a [MASK] of it", ("one", "two " * 9)]
    with_them = tokenizer.encode(texts, max_tokens=8)
    without = tokenizer.encode(texts, max_tokens=8, offsets=False)
    for first, second in zip(with_them, without, strict=True):
        assert (first.ids, first.type_ids) == (second.ids, second.type_ids)
        assert (first.special, first.truncated) == (second.special, second.truncated)
        with pytest.raises(AssertionError, match="keeps offsets"):
            _ = second.offsets


def test_empty_text(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode([], max_tokens=5) == []
    (encoding,) = tokenizer.encode([""], max_tokens=2)
    assert (encoding.n, encoding.truncated, encoding.ids) == (2, 0, [101, 102])


@pytest.mark.parametrize(("text", "special"), [("a b", 2), (("a", "b"), 3)])
def test_no_room_for_text(tokenizer: TextTokenizer, text: Any, special: int) -> None:
    with pytest.raises(UsageError, match=f"leave no room for text: {special} are special"):
        tokenizer.encode([text], max_tokens=special)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["fine", "half \ud800"], "text 2 holds a lone surrogate"),
        ([("fine", "half \udfff")], "text 1 holds a lone surrogate"),
        ([None], "text 1 is not a string: None"),
        ([("a", "b", "c")], "texts must be strings or pairs"),
        ([7], "text 1 is not a string: 7"),
        ([("a", 7)], "text 1 is not a string: 7"),
    ],
)
def test_invalid_text_is_named(tokenizer: TextTokenizer, texts: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tokenizer.encode(texts, max_tokens=None)


def test_truncation_of_a_long_pair_is_fast(tokenizer: TextTokenizer) -> None:
    import time

    # the library's own truncation would store 30 million truncated tokens
    start = time.perf_counter()
    (encoding,) = tokenizer.encode([("a " * 20_000, "b " * 20_000)], max_tokens=16)
    assert time.perf_counter() - start < 5
    assert (encoding.n, encoding.truncated) == (16, 40_003 - 16)
