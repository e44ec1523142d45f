"""Batches of texts of like length: little padding, few calls, a bounded size.

The cost of a batch is its padded tokens (the longest text times how many texts) plus a fixed
price for the call. Sorted by length, the cheapest way to cut the texts into batches within a
budget is found exactly, by dynamic programming over the place of the last cut.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tokenizers import Encoded

# Padded tokens in a batch. Measured on 2 cores (benchmarks/embed.py): throughput is level from 512
# to 2,048 and falls beyond, where activations leave the cache.
MAX_BATCH_TOKENS = 1024
# What one call costs beyond its tokens, in tokens: about 4 ms at 8 tokens/ms in the same run.
CALL_COST = 32


def plan_batches(
    lengths: Sequence[int], budget: int = MAX_BATCH_TOKENS, call_cost: int = CALL_COST
) -> list[list[int]]:
    """Group texts so that the sum of padded tokens and calls is the least.

    Args:
        lengths: tokens of each text.
        budget: the most padded tokens in a batch; a text that is longer is a batch by itself.
        call_cost: what a batch costs beyond its padded tokens.

    Returns:
        the indices of each batch, from the longest texts to the shortest.
    """
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    best = [0] + [-1] * len(order)  # best[k]: the least cost of the first k texts of the order
    cut = [0] * (len(order) + 1)  # cut[k]: where the batch that ends before k begins
    for begin, index in enumerate(order):
        width = max(lengths[index], 1)
        cost = best[begin] + call_cost
        for end in range(begin + 1, min(begin + max(budget // width, 1), len(order)) + 1):
            cost += width
            if best[end] < 0 or cost < best[end]:
                best[end], cut[end] = cost, begin
    batches, end = [], len(order)
    while end:
        batches.append(order[cut[end] : end])
        end = cut[end]
    return batches[::-1]


class Batch(NamedTuple):
    """Texts in the form a session takes.

    Attributes:
        inputs: int64 arrays of shape (texts, tokens), the ids with a third axis where each token
            is several of them. A mask of ones and token types of zero are left out: they are a
            session's default, and the fastest path.
        mask: bool, (texts, tokens): where there is a token, and not padding.
    """

    inputs: "dict[str, NDArray[np.int64]]"
    mask: "NDArray[np.bool_]"


def collate(encoded: "Sequence[Encoded]", names: Sequence[str], pad_id: int) -> Batch:
    """Pad texts on the right to the longest and stack them.

    Args:
        encoded: the tokenized texts; at least one.
        names: the inputs that the session accepts; the first takes the ids.
        pad_id: the token to pad with.
    """
    import numpy as np

    lengths = np.array([len(text.ids) for text in encoded])
    mask = np.arange(lengths.max()) < lengths[:, None]  # (texts, tokens)
    arrays: dict[str, Any] = {names[0]: _stack([text.ids for text in encoded], mask, pad_id)}
    if "attention_mask" in names and not mask.all():
        arrays["attention_mask"] = mask.astype(np.int64)
    if "token_type_ids" in names and any(any(text.type_ids) for text in encoded):
        arrays["token_type_ids"] = _stack([text.type_ids for text in encoded], mask, 0)
    return Batch(arrays, mask)


def _stack(
    rows: "Sequence[Sequence[Any]]", mask: "NDArray[np.bool_]", fill: int
) -> "NDArray[np.int64]":
    import numpy as np

    each = next((np.shape(values[0]) for values in rows if len(values)), ())
    stacked = np.full((*mask.shape, *each), fill, np.int64)
    for row, values in zip(stacked, rows, strict=True):
        row[: len(values)] = values
    return stacked
