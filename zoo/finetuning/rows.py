"""Tokenized rows of different lengths, and their batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.data.readers.problems import InvalidRows, RowError
from zoo.objectives.base import Batch, Example, ExampleDataset
from zoo.overrides import override
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Encoded, Text

CHUNK = 4096  # texts that are tokenized together ...
CHUNK_CHARACTERS = 1 << 20  # ... up to this length: a character takes up to 200 bytes
LONG = 64  # characters per kept token from which only the beginning of a text may be tokenized


@dataclass(frozen=True)
class TokenizedRows(ExampleDataset):
    """Rows in memory, concatenated."""

    # First token of each row, and the number of tokens, (rows + 1,), int64.
    starts: NDArray[np.int64]
    # Name of an input or label -> one value per token, (tokens, ...).
    arrays: Mapping[str, NDArray[Any]]
    values: Mapping[str, NDArray[Any]]  # Name -> a value of each row, (rows, ...).
    # Loss -> number, or sum of weights, of the values that each row contributes, (rows,).
    counts: Mapping[str, NDArray[Any]]
    truncated: int = 0  # Number of texts that were truncated.
    # Further sequences with lengths of their own, such as targets; only ``starts`` and ``arrays``.
    others: "tuple[TokenizedTexts, ...]" = ()
    # Number of texts, where a row has several in a sequence; ``None`` for one in each sequence.
    num_texts: int | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each row, in all of its sequences, (rows,)."""
        lengths = np.diff(self.starts)
        for other in self.others:
            lengths = lengths + np.diff(other.starts)
        return lengths

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        sequences: tuple[TokenizedRows | TokenizedTexts, ...] = (self, *self.others)
        arrays = {}
        for sequence in sequences:
            start = sequence.starts[index]
            end = sequence.starts[index + 1]
            for name, array in sequence.arrays.items():
                arrays[name] = array[start:end]
        values = {name: array[index] for name, array in self.values.items()}
        counts = {term: array[index].item() for term, array in self.counts.items()}
        return Example(arrays, values, counts=counts)


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as tokens, concatenated."""

    starts: NDArray[np.int64]
    arrays: dict[str, NDArray[Any]]  # Names of the model's inputs -> values, ids first.
    truncated: int


def tokenize(
    texts: Sequence[Text],
    tokenizer: TextTokenizer,
    inputs: Sequence[str],
    max_tokens: int,
    *,
    locations: Sequence[str],
    read: Callable[[int, Encoded], None] | None = None,
) -> TokenizedTexts:
    """Tokenize texts or pairs of texts.

    Args:
        texts: the texts.
        tokenizer: the tokenizer.
        inputs: names of the model's inputs, the ids first.
        max_tokens: length at which texts are cut.
        locations: where each text is from, for errors.
        read: called with the index and the encoding of each text, including its offsets.
    """
    has_types = "token_type_ids" in inputs
    truncated = 0
    lengths = []
    ids = list[NDArray[Any]]()
    type_ids = list[NDArray[Any]]()
    for start, chunk in chunks(texts):
        encoded = _encode(chunk, tokenizer, max_tokens, offsets=read is not None)
        lengths += [len(text.ids) for text in encoded]
        truncated += sum(text.truncated > 0 for text in encoded)
        ids.append(np.array([token for text in encoded for token in text.ids], np.int32))
        if read is not None:
            for number, text in enumerate(encoded, start):
                read(number, text)
        if has_types:
            chunk_types = [type_id for text in encoded for type_id in text.type_ids]
            type_ids.append(np.array(chunk_types, np.int8))
    require_tokens(lengths, locations)
    arrays = {inputs[0]: np.concatenate(ids)}
    if has_types and any(part.any() for part in type_ids):
        arrays["token_type_ids"] = np.concatenate(type_ids)
    return TokenizedTexts(np.cumsum([0, *lengths]), arrays, truncated)


def chunks(texts: Sequence[Text]) -> Iterator[tuple[int, list[Text]]]:
    """Yield the texts that are tokenized together, and the index of the first."""
    chunk = list[Text]()
    characters = 0
    for number, text in enumerate(texts):
        size = len(text) if isinstance(text, str) else sum(map(len, text))
        if chunk and (len(chunk) == CHUNK or characters + size > CHUNK_CHARACTERS):
            yield number - len(chunk), chunk
            chunk = []
            characters = 0
        chunk.append(text)
        characters += size
    if chunk:
        yield len(texts) - len(chunk), chunk


def _encode(
    texts: list[Text], tokenizer: TextTokenizer, max_tokens: int, *, offsets: bool
) -> list[Encoded]:
    """Tokenize texts; a much too long text is shortened first, without changing its tokens."""
    parts = [_beginning(text, LONG * max_tokens // 2) for text in texts]
    if parts == texts or not tokenizer.splits_at_spaces:
        return tokenizer.encode(texts, max_tokens=max_tokens, offsets=offsets)
    encoded = tokenizer.encode(parts, max_tokens=max_tokens, offsets=offsets)
    for number, (text, part) in enumerate(zip(texts, parts, strict=True)):
        # The end of a beginning may be tokenized differently, so it must have twice the tokens.
        if part != text and encoded[number].truncated < max_tokens:
            (encoded[number],) = tokenizer.encode([text], max_tokens=max_tokens, offsets=offsets)
    return encoded


def _beginning(text: Text, size: int) -> Text:
    """Return the first words of a text of more than twice a size; of a pair, both texts."""
    if not isinstance(text, str) or len(text) <= 2 * size:
        return text
    end = text.rfind(" ", 1, size)
    while end > 0:
        if text[end - 1].isalnum() and text[end + 1].isalnum():
            return text[:end]
        end = text.rfind(" ", 1, end)
    return text


def require_tokens(lengths: Sequence[int], locations: Sequence[str]) -> None:
    """Raise an error for texts without tokens."""
    pairs = zip(lengths, locations, strict=True)
    empty = dict.fromkeys(location for length, location in pairs if not length)
    if empty:
        errors = [RowError(f"{location} has no tokens", location=location) for location in empty]
        raise InvalidRows(errors, len(errors))


def pad_and_stack(
    examples: Sequence[Example],
    fill: Mapping[str, int],
    counts: Sequence[str],
    *,
    masks: Mapping[str, str | None],
    lengths: NDArray[np.int64] | None = None,
) -> Batch:
    """Return a batch of rows, each sequence padded on the right to the longest one.

    ``masks`` has the attention mask, if any, of each array of tokens. If a row has several texts,
    one after another, ``lengths`` are (rows, texts), and tensors are (rows, texts, tokens).
    """
    first = examples[0]
    tensors = {}
    tokens = 0
    for name, array in first.arrays.items():
        rows = [row.arrays[name] for row in examples]
        sizes = np.array([len(row) for row in rows]) if lengths is None else lengths
        real = np.arange(sizes.max()) < sizes[..., None]  # (rows, tokens)
        stacked = np.full((*real.shape, *array.shape[1:]), fill.get(name, 0), np.int64)
        stacked[real] = np.concatenate(rows)
        tensors[name] = torch.from_numpy(stacked)
        if name in masks:
            tokens += int(sizes.sum())
        # Models are faster without a mask, which only padding needs.
        mask = masks.get(name)
        if mask is not None and not real.all():
            tensors[mask] = torch.from_numpy(real.astype(np.int64))
    for name in first.values:
        tensors[name] = torch.from_numpy(np.stack([row.values[name] for row in examples]))
    return Batch(
        tensors=tensors,
        counts={term: sum(row.counts[term] for row in examples) for term in counts},
        rows=len(examples),
        tokens=tokens,
    )
