"""Batching of texts by length, with little padding and few forward passes."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Item = TypeVar("Item")
# Tokens per batch, with padding. On 2 cores (benchmarks/embed.py), throughput is constant from 512
# to 2,048 and falls beyond, where activations do not fit into the cache.
MAX_BATCH_TOKENS = 1024
# Constant cost of a forward pass in tokens: about 4 ms at 8 tokens/ms in the same benchmark.
CALL_COST = 32


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of ``size``; the last one may be shorter."""
    source = iter(items)
    while chunk := list(itertools.islice(source, size)):
        yield chunk


def plan_batches(
    lengths: Sequence[int],
    budget: int = MAX_BATCH_TOKENS,
    call_cost: int = CALL_COST,
    batch_size: int | None = None,
    padding_cost: float = 1.0,
) -> list[list[int]]:
    """Group texts into batches of the lowest total cost, of at most ``budget`` padded tokens.

    The cost of a batch is its number of tokens with padding plus a constant for the forward pass.
    For texts sorted by length, dynamic programming over the start of the last batch finds the
    partition of lowest cost.

    A longer text is a batch of its own. ``batch_size`` is the largest number of texts of a batch.
    ``padding_cost`` is the cost of a token of padding, which also counts in the budget.
    """
    if len(lengths) == 1:
        return [[0]]
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    count = len(order)
    sorted_lengths = [max(lengths[index], 1) for index in order]
    best = [0.0] + [-1.0] * count  # best[k]: lowest cost of the first k texts
    cut = [0] * (count + 1)  # cut[k]: start of the batch that ends at k
    for begin, width in enumerate(sorted_lengths):
        size = 0.0
        last = min(begin + (batch_size or count), count)
        cost_before = best[begin] + call_cost
        for end in range(begin + 1, last + 1):
            length = sorted_lengths[end - 1]
            size += length + padding_cost * (width - length)
            if size > budget and end > begin + 1:
                break
            cost = cost_before + size
            if best[end] < 0 or cost < best[end]:
                best[end] = cost
                cut[end] = begin
    batches = []
    end = len(order)
    while end:
        batches.append(order[cut[end] : end])
        end = cut[end]
    return batches[::-1]


class TokenRow(Protocol):
    """Tokens of a text, or of a part of it."""

    @property
    def ids(self) -> Sequence[Any]:
        """Token ids, special tokens included."""

    @property
    def type_ids(self) -> Sequence[int]:
        """Token type id of each token."""


class EncodedBatch(NamedTuple):
    """Inputs of a session."""

    # int64 arrays, (texts, tokens); ids have a third axis where a token is a sequence of
    # characters. Masks of ones and token types of zero are left out: they are the default and the
    # fastest path.
    inputs: "dict[str, NDArray[np.int64]]"
    mask: "NDArray[np.bool_]"  # (texts, tokens), bool, true for tokens and false for padding


def collate(encoded: Sequence[TokenRow], names: Sequence[str], pad_id: int) -> EncodedBatch:
    """Pad texts on the right and stack them."""
    import numpy as np

    lengths = [len(text.ids) for text in encoded]
    longest = max(lengths)
    is_padded = min(lengths) < longest
    if is_padded:
        mask = np.arange(longest) < np.array(lengths)[:, None]  # (texts, tokens)
    else:
        mask = np.empty((len(lengths), longest), np.bool_)
        mask.fill(True)
    ids = [text.ids for text in encoded]
    arrays: dict[str, Any] = {names[0]: _stack(ids, mask, pad_id, is_padded=is_padded)}
    if is_padded and "attention_mask" in names:
        arrays["attention_mask"] = mask.astype(np.int64)
    if "token_type_ids" in names:
        types = [text.type_ids for text in encoded]
        if any(map(any, types)):
            arrays["token_type_ids"] = _stack(types, mask, 0, is_padded=is_padded)
    return EncodedBatch(arrays, mask)


def _stack(
    rows: "Sequence[Sequence[Any]]", mask: "NDArray[np.bool_]", fill: int, *, is_padded: bool
) -> "NDArray[np.int64]":
    import numpy as np

    if not is_padded:
        return np.array(rows, np.int64)
    shape = next((np.shape(values[0]) for values in rows if len(values)), ())
    stacked = np.full((*mask.shape, *shape), fill, np.int64)
    for row, values in zip(stacked, rows, strict=True):
        row[: len(values)] = values
    return stacked
