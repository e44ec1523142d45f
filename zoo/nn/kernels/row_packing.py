"""Packing of the rows of a padded batch, so that a model computes little padding."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_packs_in_inference = ContextVar("_packs_in_inference", default=False)


@contextlib.contextmanager
def packing_in_inference() -> Iterator[None]:
    """Pack the rows of padded batches in inference, too; outputs at padding are then anything."""
    token = _packs_in_inference.set(True)
    try:
        yield
    finally:
        _packs_in_inference.reset(token)


def packs_in_inference() -> bool:
    """Return whether the rows of padded batches are packed in inference."""
    return _packs_in_inference.get()


class PackedRows(NamedTuple):
    """A padded batch whose rows share fewer rows of the same length."""

    # (packed rows, tokens), int64: index of each token in the flattened batch; 0 for padding
    source: Tensor
    # (packed rows, tokens), int64: number of each token's row of the batch, counted from 1 in each
    # packed row; 0 for padding
    document_ids: Tensor
    position_ids: Tensor  # (packed rows, tokens), int64: the token's column in the batch
    # (batch, tokens), int64: index of each token in the flattened packed rows; 0 for padding
    target: Tensor

    @classmethod
    def of(cls, attention_mask: Tensor, *, one_row: bool = False) -> "PackedRows":
        """Return the packing of a batch, in one row or in rows as long as the longest one."""
        # attention_mask: (batch, tokens), int64, on the CPU: 1 for tokens, 0 for padding on the
        # right
        batch, columns = attention_mask.shape
        lengths = attention_mask.sum(dim=1).numpy()
        capacity = int(lengths.sum() if one_row else lengths.max())
        bins = first_fit_decreasing(lengths.tolist(), capacity)
        source = np.zeros((len(bins), capacity), np.int64)
        document_ids = np.zeros_like(source)
        position_ids = np.zeros_like(source)
        target = np.zeros((batch, columns), np.int64)
        for number, rows in enumerate(bins):
            start = 0
            for document, row in enumerate(rows, start=1):
                end = start + int(lengths[row])
                positions = np.arange(lengths[row])
                source[number, start:end] = row * columns + positions
                document_ids[number, start:end] = document
                position_ids[number, start:end] = positions
                target[row, : len(positions)] = number * source.shape[1] + start + positions
                start = end
        return cls(*map(torch.from_numpy, (source, document_ids, position_ids, target)))

    def pack(self, x: Tensor) -> Tensor:
        """Return a value per token in the packed rows: (batch, tokens) to (packed rows, tokens)."""
        return x.flatten()[self.source]

    def inputs(self, input_ids: Tensor, token_type_ids: Tensor | None) -> dict[str, Tensor]:
        """Return the inputs of ``Encoder.encode`` for ids and types, (batch, tokens) each."""
        inputs = {
            "input_ids": self.pack(input_ids),
            "position_ids": self.position_ids,
            "document_ids": self.document_ids,
        }
        if token_type_ids is not None:
            inputs["token_type_ids"] = self.pack(token_type_ids)
        return inputs

    def unpack(self, x: Tensor) -> Tensor:
        """Return a vector per token of the batch, (..., batch, tokens, hidden)."""
        # x: (..., packed rows, tokens, hidden). Padding has the vector of the first token of all.
        # the gradient of index_select is computed faster than that of an index
        flat = x.flatten(-3, -2).index_select(-2, self.target.flatten())
        return flat.unflatten(-2, self.target.shape)  # type: ignore[no-any-return, no-untyped-call]


def pack_rows(attention_mask: Tensor | None, *, one_row: bool) -> PackedRows | None:
    """Return the packing of a batch, see ``PackedRows.of``; ``None`` where it is not faster."""
    # one row has no padding, but all pairs of its tokens must not be computed
    # on a GPU, the lengths of the rows would have to be copied back
    if attention_mask is None or attention_mask.device.type != "cpu":
        return None
    return PackedRows.of(attention_mask, one_row=one_row)


def is_padded_on_right(attention_mask: Tensor) -> bool:
    """Return whether each row of a mask, (batch, tokens), is ones and then zeros."""
    return not bool((attention_mask[:, 1:] > attention_mask[:, :-1]).any())


def first_fit_decreasing(lengths: list[int], capacity: int) -> list[list[int]]:
    """Return the indices of the lengths that share a bin, for each bin."""
    bins = list[list[int]]()
    free = list[int]()
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        place = next((k for k, room in enumerate(free) if room >= lengths[index]), len(bins))
        if place == len(bins):
            bins.append([])
            free.append(capacity)
        bins[place].append(index)
        free[place] -= lengths[index]
    return bins
