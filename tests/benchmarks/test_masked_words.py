"""Masked words of a benchmark: the words that are masked, and their loss."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn

from benchmarks.masked_words import (
    BATCH,
    WORDS,
    first_tokens,
    mask,
    mask_words,
    predict,
    swap_sources,
)

SPECIAL = ["<pad>", "</s>", *(f"<extra_id_{number}>" for number in range(9))]
NUMBERS = [f"w{number}" for number in range(99)]


@pytest.fixture
def by_words() -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *NUMBERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


@pytest.fixture
def by_characters() -> Tokenizer:
    characters = [" ", *"w0123456789"]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *characters])}
    return Tokenizer(models.BPE(vocab=vocabulary, merges=[]))


def spelling(tokenizer: Tokenizer, ids: Tensor) -> str:
    return "".join(str(tokenizer.id_to_token(int(token))) for token in ids)


def test_a_span_becomes_a_sentinel(by_words: Tokenizer) -> None:
    noise = np.array([False, True, True, False, True])
    sample = mask(by_words, ["w1", "w2", "w3", "w4", "w5"], noise)
    tokens = [by_words.id_to_token(int(token)) for token in sample.source]
    assert tokens == ["w1", "<extra_id_0>", "w4", "<extra_id_1>", "</s>"]
    tokens = [by_words.id_to_token(int(token)) for token in sample.target]
    assert tokens == ["<extra_id_0>", "w2", "w3", "<extra_id_1>", "w5", "</s>"]
    assert sample.text.tolist() == [False, True, True, False, True, False]
    assert sample.masked_bytes == len("w2 w3") + len("w5")


def test_a_span_becomes_a_mask_if_the_vocabulary_has_one(by_words: Tokenizer) -> None:
    by_words.add_special_tokens(["<s>", "<mask>"])
    begin = by_words.token_to_id("<s>")
    end = by_words.token_to_id("</s>")
    by_words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", begin), ("</s>", end)]
    )
    noise = np.array([False, True, True, False, True])
    sample = mask(by_words, ["w1", "w2", "w3", "w4", "w5"], noise)
    tokens = [by_words.id_to_token(int(token)) for token in sample.source]
    assert tokens == ["<s>", "w1", "<mask>", "w4", "<mask>", "</s>"]
    tokens = [by_words.id_to_token(int(token)) for token in sample.target]
    assert tokens == ["<s>", "w1", "w2", "w3", "w4", "w5", "</s>"]
    assert sample.text.tolist() == [False, False, True, True, False, True, False]
    assert sample.masked_bytes == len("w2 w3") + len("w5")


def test_texts_begin_with_no_token_that_the_tokenizer_does_not_add(by_words: Tokenizer) -> None:
    by_words.add_special_tokens(["<s>", "<mask>"])
    sample = mask(by_words, ["w1", "w2"], np.array([False, True]))
    tokens = [by_words.id_to_token(int(token)) for token in sample.target]
    assert tokens == ["w1", "w2", "</s>"]
    assert sample.text.tolist() == [False, True, False]


def test_the_same_words_are_masked_for_every_vocabulary(
    by_words: Tokenizer, by_characters: Tokenizer, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text(" ".join(NUMBERS[: 3 * WORDS + 1]), encoding="utf-8")
    words, characters = mask_words(by_words, texts), mask_words(by_characters, texts)
    assert len(words) == len(characters) == 3  # the last word does not fill a text
    for by_word, by_character in zip(words, characters, strict=True):
        assert by_word.masked_bytes == by_character.masked_bytes
        spelled = spelling(by_characters, by_character.target[by_character.text])
        assert spelled.replace(" ", "") == spelling(by_words, by_word.target[by_word.text])


@dataclass
class Config:
    pad_token_id: int = 0
    decoder_start_token_id: int = 0


class Echo(nn.Module):
    """Returns the decoder's input as one-hot logits, and checks the mask."""

    def forward(self, ids: Tensor, mask: Tensor, *, decoder_input_ids: Tensor) -> dict[str, Tensor]:
        assert torch.equal(mask, (ids != 0).long())
        return {"logits": nn.functional.one_hot(decoder_input_ids, 120).float()}


def test_targets_are_shifted_and_padding_does_not_count(by_words: Tokenizer) -> None:
    batch = [
        mask(by_words, ["w1", "w2"], np.array([False, True])),
        mask(by_words, ["w1", "w2", "w3"], np.array([False, True, True])),
    ]
    logits, labels, text = predict(Echo(), batch, Config())
    assert len(batch) < BATCH
    assert labels[0].tolist() == [*batch[0].target.tolist(), -100]
    assert text.tolist() == [[False, True, False, False], [False, True, True, False]]
    shifted = logits.argmax(-1)
    assert shifted[:, 0].tolist() == [0, 0]
    assert torch.equal(shifted[1, 1:], batch[1].target[:-1])


def test_another_source_comes_from_the_next_text_and_spans_begin_after_sentinels(
    by_words: Tokenizer,
) -> None:
    noise = np.array([False, True, True, False, True])
    first, second, third = (
        mask(by_words, [f"w{start + word}" for word in range(5)], noise) for start in (10, 20, 30)
    )
    swapped = swap_sources([first, second, third])
    assert [by_words.id_to_token(int(sample.source[0])) for sample in swapped] == [
        "w20",
        "w30",
        "w10",
    ]
    assert swapped[0].target is first.target
    begins = [False, True, False, False, True, False]  # <0> w11 w12 <1> w14 </s>
    assert first_tokens(first.text[None]).tolist() == [begins]
