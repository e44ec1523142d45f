"""Scores of denoising that vocabularies share: whole words of unseen text are masked.

Models of span corruption write the masked words after their sentinels, and models of text infilling
the whole text. Only the masked words are scored.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from zoo.checkpoint import load_checkpoint
from zoo.data.rng import generator
from zoo.inference.load_model import load_model
from zoo.objectives.examples.span_noise import Noise, random_spans

WORDS = 24  # per text
DENSITY = 0.15
SPAN = 2.0  # mean number of words, about 3 tokens of the released vocabulary
TEXTS = 1024
BATCH = 64
IGNORED = -100


class Sample(NamedTuple):
    """A text with masked words.

    Attributes:
        source: token ids of the source, (n,), int64.
        target: token ids of the target, (m,), int64.
        text: whether a token of the target is part of the text, (m,), bool.
        masked_bytes: number of bytes of the masked words.
    """

    source: torch.Tensor
    target: torch.Tensor
    text: torch.Tensor
    masked_bytes: int


def score_masked_words(model: Path, texts: Path) -> dict[str, float]:
    """Score an encoder-decoder on texts of 24 words, 4 of which are masked in 2 spans.

    Texts with more tokens than the model has positions are left out. The same words are masked for
    every tokenizer. Sentinels and the end of the target do not count: their frequency is a setting
    of the objective.

    Args:
        model: directory of a model that span corruption or text infilling has trained.
        texts: file of unseen text.

    Returns:
        ``bits per byte``, the loss of the tokens of masked words in bits per byte of these words;
        ``accuracy``, the fraction of these tokens that is predicted, each from the source and the
        tokens before it; ``gap``, what their mean loss grows by, in nats, with the source of
        another text; and ``gap of first tokens``, that of the first token of each span.
    """
    checkpoint = load_checkpoint(model)
    module = load_model(checkpoint)
    samples = mask_words(Tokenizer.from_file(str(model / "tokenizer.json")), texts)
    if most := getattr(checkpoint.config, "max_positions", None):
        samples = [s for s in samples if max(len(s.source), len(s.target)) <= most]
    results = []
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        logits, labels, text = predict(module, batch, checkpoint.config)
        others, _, _ = predict(module, swap_sources(batch), checkpoint.config)
        loss, other = (
            F.cross_entropy(outputs[text], labels[text], reduction="none")
            for outputs in (logits, others)
        )
        correct = (logits.argmax(-1) == labels)[text]
        first = first_tokens(text)[text]
        results.append(torch.stack([loss, other - loss, correct, first]))
    loss, gap, correct, first = torch.cat(results, dim=1)
    masked_bytes = sum(sample.masked_bytes for sample in samples)
    return {
        "bits per byte": float(loss.sum()) / math.log(2) / masked_bytes,
        "accuracy": float(correct.mean()),
        "gap": float(gap.mean()),
        "gap of first tokens": float(gap[first > 0].mean()),
    }


def swap_sources(batch: Sequence[Sample]) -> list[Sample]:
    """Return samples with the source of the next one; the last has that of the first."""
    following = [*batch[1:], batch[0]]
    return [
        sample._replace(source=other.source) for sample, other in zip(batch, following, strict=True)
    ]


def first_tokens(text: torch.Tensor) -> torch.Tensor:
    """Return which tokens of targets begin the words of a span, (batch, tokens), bool.

    Args:
        text: see ``Sample``, (batch, tokens), bool.
    """
    return text & ~F.pad(text[:, :-1], (1, 0))


def mask_words(tokenizer: Tokenizer, texts: Path) -> list[Sample]:
    """Return the first texts of a file with masked words; what is masked depends on words alone."""
    words = texts.read_text(encoding="utf-8").split()[: TEXTS * WORDS]
    pieces = np.array(words[: len(words) // WORDS * WORDS], dtype=object).reshape(-1, WORDS)
    return [
        mask(tokenizer, list(row), random_spans(WORDS, DENSITY, SPAN, generator(0, "words", index)))
        for index, row in enumerate(pieces)
    ]


def mask(tokenizer: Tokenizer, words: Sequence[str], noise: Noise) -> Sample:
    """Return a sample; ``noise`` says which words are masked, (words,), bool: the last, not the
    first.
    """
    borders = np.flatnonzero(np.diff(noise)) + 1
    texts = [
        " ".join(words[index] for index in run) for run in np.split(range(len(words)), borders)
    ]
    form = with_mask if tokenizer.token_to_id("<mask>") is not None else with_sentinels
    source, target, is_text = form(tokenizer, texts)
    return Sample(
        source=torch.tensor(source),
        target=torch.tensor(target),
        text=torch.tensor(is_text),
        masked_bytes=sum(len(text.encode()) for text in texts[1::2]),
    )


Tokens = tuple[list[int], list[int], list[bool]]  # source, target, and what of it is masked text


def with_sentinels(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """Return the tokens of span corruption: every second text is masked, from the second on."""
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    vocabulary = tokenizer.get_vocab()
    end = [vocabulary["</s>"]]
    sentinels = [vocabulary[f"<extra_id_{span}>"] for span in range(len(ids) // 2)]
    source: list[int] = []
    target: list[int] = []
    for context, masked, sentinel in zip(ids[::2], ids[1::2], sentinels, strict=True):
        source += [*context, sentinel]
        target += [sentinel, *masked]
    is_text = [token not in sentinels for token in target]
    return source + end, target + end, [*is_text, False]


def with_mask(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """Return the tokens of text infilling: every second text becomes a mask, from the second on."""
    spaced = [texts[0], *(f" {text}" for text in texts[1:])]
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in spaced]
    vocabulary = tokenizer.get_vocab()
    after = [vocabulary["</s>"]]
    added = tokenizer.encode("").ids  # As the objective: what the tokenizer adds, or the end only.
    before = added[:-1] if added[-1:] == after else []
    source = list(before)
    target = list(before)
    is_text = [False] * len(before)
    for number, part in enumerate(ids):
        masked = number % 2 == 1
        source += [vocabulary["<mask>"]] if masked else part
        target += part
        is_text += [masked] * len(part)
    return source + after, target + after, [*is_text, False]


@torch.no_grad()
def predict(
    module: torch.nn.Module, batch: Sequence[Sample], config: object
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits, (batch, tokens, vocabulary), labels and text, (batch, tokens), of samples."""
    pad: int = config.pad_token_id  # type: ignore[attr-defined]
    sources = pad_sequence([sample.source for sample in batch], True, pad)
    mask = pad_sequence([torch.ones_like(sample.source) for sample in batch], True, 0)
    labels = pad_sequence([sample.target for sample in batch], True, IGNORED)
    shifted = labels.masked_fill(labels == IGNORED, pad).roll(1, 1)
    shifted[:, 0] = config.decoder_start_token_id  # type: ignore[attr-defined]
    text = pad_sequence([sample.text for sample in batch], True, False)
    return module(sources, mask, decoder_input_ids=shifted)["logits"], labels, text
