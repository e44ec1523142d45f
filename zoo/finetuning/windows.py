"""Windows of long texts: the model reads a text as several rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.finetuning.rows import TokenizedTexts, chunks, pad_and_stack, require_tokens
from zoo.inference.processing.windows import TextWindows, Window
from zoo.objectives.base import Batch, Example
from zoo.plugins import get_family
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Encoded, Text
from zoo.training.config.finetune import FineTuneConfig

# lengths of a text's windows, whose tokens follow each other in its row
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
    """Tokenize texts or pairs of texts, and split them into windows."""
    # Returns the tokens of all windows of a text, one after the other; and of each text the numbers
    # of tokens of its windows, (windows,), int64.
    ids = list[NDArray[Any]]()
    kinds = list[NDArray[Any]]()
    lengths = np.empty(len(texts), object)
    for start, chunk in chunks(texts):
        encoded = tokenizer.encode(chunk, max_tokens=None, offsets=read is not None)
        for number, text in enumerate(encoded, start):
            windows.require_room(text, locations[number])
            parts = list(windows.split(text))
            lengths[number] = np.array([len(part.ids) for part in parts])
            ids += [np.array(part.ids, np.int32) for part in parts]
            kinds += [np.array(part.type_ids, np.int8) for part in parts]
            if read is not None:
                read(number, text, parts)
    arrays = {inputs[0]: np.concatenate(ids)}
    if "token_type_ids" in inputs and any(part.any() for part in kinds):
        arrays["token_type_ids"] = np.concatenate(kinds)
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
    """Return a batch of texts whose windows are rows, each padded to the longest window."""
    # Inputs are (windows, tokens), values (texts, ...), next to ``TEXTS``.
    lengths = [example.values[WINDOW_LENGTHS] for example in examples]
    rows = list[Example]()
    for example in examples:
        cuts = np.cumsum(example.values[WINDOW_LENGTHS])[:-1]
        windows = [np.split(array, cuts) for array in example.arrays.values()]
        rows += [
            Example(dict(zip(example.arrays, arrays, strict=True)), {})
            for arrays in zip(*windows, strict=True)
        ]
    batch = pad_and_stack(rows, fill, [], masks=masks)
    values = {
        name: torch.from_numpy(np.stack([example.values[name] for example in examples]))
        for name in examples[0].values
        if name != WINDOW_LENGTHS
    }
    texts = np.repeat(np.arange(len(examples)), [len(sizes) for sizes in lengths])
    return replace(
        batch,
        tensors={**batch.tensors, **values, TEXTS: torch.from_numpy(texts)},
        counts={term: sum(example.counts[term] for example in examples) for term in counts},
        rows=len(examples),
    )


def mean_of_windows(logits: Tensor, texts: Tensor, count: int) -> Tensor:
    """Return the mean of the logits, (windows, labels), of each text: (texts, labels)."""
    numbers = torch.arange(count, device=texts.device)
    shares = (texts == numbers[:, None]).to(logits.dtype)  # (texts, windows)
    # not a matrix product, which autocast would compute in another dtype
    sums = (shares[..., None] * logits).sum(1)
    return sums / shares.sum(1, keepdim=True)
