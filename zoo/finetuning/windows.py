"""Windows of long texts: the model reads a text as several rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.finetuning.rows import TokenizedTexts, chunks, pad_and_stack, require_tokens
from zoo.inference.processing.windows import TextWindows, Window, WindowPooling
from zoo.objectives.base import Batch, Example
from zoo.plugins import get_family
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Encoded, Text
from zoo.training.config.finetune import FineTuneConfig

# The value of a row with the lengths of a text's windows, whose tokens follow each other.
WINDOW_LENGTHS = "window_lengths"
TEXTS = "texts"  # tensor of a batch, (windows,): index of the window's text in the batch


def text_windows(run: FineTuneConfig, doc_stride: int) -> TextWindows:
    """Return windows of ``max_seq_len`` tokens that share ``doc_stride`` tokens."""
    return TextWindows.of(get_family(run.family), run.max_seq_len, doc_stride)


def tokenize_windows(
    texts: Sequence[Text],
    tokenizer: TextTokenizer,
    inputs: Sequence[str],
    windows: TextWindows,
    *,
    locations: Sequence[str],
    read: Callable[[int, Encoded, list[Window]], None] | None = None,
) -> tuple[TokenizedTexts, NDArray[np.object_]]:
    """Tokenize texts or pairs of texts, and split them into windows.

    Args:
        texts: the texts.
        tokenizer: the tokenizer.
        inputs: names of the model's inputs, the ids first.
        windows: how texts are split.
        locations: where each text is from, for errors.
        read: called with the number of each text, its encoding and its windows.

    Returns:
        The tokens of all windows of a text, one after the other; and for each text the numbers of
        tokens of its windows, (windows,), int64.
    """
    ids = list[NDArray[Any]]()
    type_ids = list[NDArray[Any]]()
    lengths = np.empty(len(texts), object)
    for start, chunk in chunks(texts):
        encoded = tokenizer.encode(chunk, max_tokens=None, offsets=read is not None)
        for number, text in enumerate(encoded, start):
            windows.require_room(text, locations[number])
            parts = list(windows.split(text))
            lengths[number] = np.array([len(part.ids) for part in parts])
            ids += [np.array(part.ids, np.int32) for part in parts]
            type_ids += [np.array(part.type_ids, np.int8) for part in parts]
            if read is not None:
                read(number, text, parts)
    arrays = {inputs[0]: np.concatenate(ids)}
    if "token_type_ids" in inputs and any(part.any() for part in type_ids):
        arrays["token_type_ids"] = np.concatenate(type_ids)
    totals = [int(sizes.sum()) for sizes in lengths]
    require_tokens(totals, locations)
    starts = np.cumsum([0, *totals])
    return TokenizedTexts(starts, arrays, truncated=0), lengths


def collate_windows(
    examples: Sequence[Example],
    fill: Mapping[str, int],
    counts: Sequence[str],
    *,
    masks: Mapping[str, str | None],
) -> Batch:
    """Return a batch of texts whose windows are rows, each padded to the longest window.

    Inputs are (windows, tokens), values (texts, ...), next to ``TEXTS``.
    """
    rows = list[Example]()
    window_counts = []
    for example in examples:
        lengths = example.values[WINDOW_LENGTHS]
        window_counts.append(len(lengths))
        cuts = np.cumsum(lengths)[:-1]
        window_arrays = [np.split(array, cuts) for array in example.arrays.values()]
        for arrays in zip(*window_arrays, strict=True):
            rows.append(Example(dict(zip(example.arrays, arrays, strict=True)), {}))
    batch = pad_and_stack(rows, fill, [], masks=masks)
    tensors = dict(batch.tensors)
    for name in examples[0].values:
        if name != WINDOW_LENGTHS:
            values = np.stack([example.values[name] for example in examples])
            tensors[name] = torch.from_numpy(values)
    texts = np.repeat(np.arange(len(examples)), window_counts)
    tensors[TEXTS] = torch.from_numpy(texts)
    term_counts = {}
    for term in counts:
        term_counts[term] = sum(example.counts[term] for example in examples)
    return replace(batch, tensors=tensors, counts=term_counts, rows=len(examples))


def max_of_windows(logits: Tensor, texts: Tensor, count: int) -> Tensor:
    """Return the largest logits, (windows, labels), of each text: (texts, labels)."""
    numbers = torch.arange(count, device=texts.device)
    belongs = texts == numbers[:, None]  # (texts, windows)
    return torch.where(belongs[..., None], logits, -torch.inf).amax(1)


def first_of_windows(logits: Tensor, texts: Tensor, count: int) -> Tensor:
    """Return the logits, (windows, labels), of the first window of each text: (texts, labels)."""
    first = torch.searchsorted(texts, torch.arange(count, device=texts.device))
    return logits[first]


def mean_of_windows(logits: Tensor, texts: Tensor, count: int) -> Tensor:
    """Return the mean of the logits, (windows, labels), of each text: (texts, labels)."""
    numbers = torch.arange(count, device=texts.device)
    shares = (texts == numbers[:, None]).to(logits.dtype)  # (texts, windows)
    # This is not a matrix product, which autocast would compute in another dtype.
    sums = (shares[..., None] * logits).sum(1)
    return sums / shares.sum(1, keepdim=True)


POOL_WINDOWS: Mapping[WindowPooling, Callable[[Tensor, Tensor, int], Tensor]] = {
    "mean": mean_of_windows,
    "max": max_of_windows,
    "first": first_of_windows,
}
