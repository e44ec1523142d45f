"""Attention within the documents of packed rows, without a mask of all pairs of tokens."""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.attention.masks import packed_mask
from zoo.nn.capture import is_capturing_attention
from zoo.nn.kernels.attention_blocks import HALF, can_use_blocks
from zoo.nn.kernels.document_groups import attend_in_groups, groups_of_documents
from zoo.nn.packed_attention import DocumentOffsets, document_offsets, outside_of_graphs

# of the width of a head, in the kernel
ALIGNMENT = 8
LARGEST_HEAD = 256
PAIRS_OF_A_CALL = 2048  # of tokens: an estimate of those that take a CPU as long as a call

_masks_only = ContextVar("_masks_only", default=False)


@contextlib.contextmanager
def masks_only() -> Iterator[None]:
    """Use masks on every device, for example to count the operations of whole rows."""
    before = _masks_only.set(True)
    try:
        yield
    finally:
        _masks_only.reset(before)


def document_mask(
    document_ids: Tensor, x: Tensor, *, causal: bool = False
) -> Tensor | DocumentOffsets:
    """Return what restricts attention to documents: offsets where they are supported, or a mask."""
    # document_ids: (rows, tokens), int64, see ``DocumentOffsets.of``, 0 for padding; x: (rows,
    # tokens, hidden)
    if supports_offsets(x, document_ids):
        return DocumentOffsets.of(document_ids, causal=causal)
    return packed_mask(document_ids, document_ids, x.dtype, causal=causal)


def supports_offsets(x: Tensor, document_ids: Tensor) -> bool:
    """Return whether attention supports offsets here, and is faster with them than with a mask."""
    # x: (rows, tokens, hidden); document_ids: (rows, tokens), int64, see ``DocumentOffsets.of``
    if x.is_cuda:
        return bool(kernel_is_usable(x.dtype, x.device))
    if x.device.type != "cpu" or not attends_by_document():
        return False
    if torch.is_inference_mode_enabled():
        return True  # With a mask, NaN in a document would be NaN in all.
    lengths = document_offsets(document_ids).diff().long()
    pairs = document_ids.numel() * document_ids.shape[1] - int(lengths.square().sum())
    return pairs > PAIRS_OF_A_CALL * len(lengths)


def attends_by_document() -> bool:
    """Return whether attention on a CPU supports offsets here: in training and in inference."""
    computes = torch.is_grad_enabled() or torch.is_inference_mode_enabled()
    return computes and not torch.compiler.is_compiling() and not needs_masks()


def needs_masks() -> bool:
    """Return whether attention takes masks here, whatever else is supported."""
    # reading a context variable would split the graph of compiled code
    masked = not torch.compiler.is_compiling() and _masks_only.get()
    return masked or is_capturing_attention()


@outside_of_graphs
def kernel_is_usable(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernel on CUDA takes a dtype, or the one that autocast has."""
    if needs_masks():
        return False
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    half = dtype in (torch.float16, torch.bfloat16)
    return half and torch.cuda.get_device_capability(device) >= (8, 0)


def attend_documents(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    documents: DocumentOffsets,
    *,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(q k^T scale) v within each document, all (batch, heads, tokens, head_size)."""
    # k and v have ``documents.more_keys`` more tokens for each document; rows are then only one.
    #
    # On CUDA in half precision, attention takes the offsets of the documents, as flash attention
    # does for sequences of different lengths (Dao 2023, arXiv:2307.08691): no mask of (rows,
    # tokens, tokens) is made, and pairs of tokens of different documents cost nothing. So it does
    # in training on CPUs, where these pairs are so many that a call for each document takes less
    # time. Elsewhere, a mask is added to the scores (``zoo.nn.attention.masks``), as in float32 on
    # CUDA, which the kernel does not take.
    #
    # The kernel is ``torch.nn.attention.varlen.varlen_attn``'s, called as an operator, because that
    # function has no dropout of attention weights, which most recipes have. Neither has flex
    # attention; that is why attention with a learned bias for each pair of tokens, which the kernel
    # does not add, takes a mask on every device.
    # The kernel is slow with dropout and in half precision.
    is_slow = dropout or q.dtype in HALF
    if is_slow and documents.reach is None and can_use_blocks(q, k, v, dropout=dropout):
        groups = groups_of_documents(documents, q.shape[1])
        return attend_in_groups(
            q, k, v, groups, causal=documents.causal, dropout=dropout, scale=scale
        )
    batch = q.shape[0]
    size = q.shape[-1]
    kernel = _flash if q.is_cuda and size <= LARGEST_HEAD else _by_document
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # (tokens, heads, head_size)
    mixed = kernel(q, k, v, documents, dropout, size**-0.5 if scale is None else scale)
    return mixed.unflatten(0, (batch, -1)).transpose(1, 2)  # type: ignore[no-untyped-call, no-any-return]


def _flash(
    q: Tensor, k: Tensor, v: Tensor, documents: DocumentOffsets, dropout: float, scale: float
) -> Tensor:
    """Run the kernel on (tokens, heads, head_size), all documents at once."""
    size = q.shape[-1]
    longest = documents.max_length
    reach = -1 if documents.reach is None else documents.reach  # -1 for no limit
    q, k, v = (F.pad(x, (0, -size % ALIGNMENT)) if size % ALIGNMENT else x for x in (q, k, v))
    outputs = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        documents.offsets,
        documents.offsets_of_keys,
        longest,
        longest + documents.more_keys,
        dropout,
        documents.causal,
        False,  # return no mask of the dropout
        scale=scale,
        window_size_left=reach,
        window_size_right=reach,
    )
    return outputs[0][..., :size]  # type: ignore[no-any-return]


def _by_document(
    q: Tensor, k: Tensor, v: Tensor, documents: DocumentOffsets, dropout: float, scale: float
) -> Tensor:
    """Return the attention within each document, as the kernel computes it, on any device."""
    # Rows are split at once: each slice would have a gradient of the size of all rows. Without the
    # dimension of a batch, the function stores the scores of all pairs of tokens
    lengths = documents.offsets.diff().tolist()
    of_keys = documents.offsets_of_keys.diff().tolist()
    # the kernel's own causal mask is of as many queries as keys
    masked = documents.reach is not None or (documents.causal and documents.more_keys > 0)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    parts = (torch.split(x, each, dim=2) for x, each in ((q, lengths), (k, of_keys), (v, of_keys)))
    mixed = [
        F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=window(queries.shape[2], documents, q) if masked else None,
            dropout_p=dropout,
            is_causal=documents.causal and not masked,
            scale=scale,
        )
        for queries, keys, values in zip(*parts, strict=True)
    ]
    return torch.cat(mixed, dim=2)[0].transpose(0, 1)


def window(tokens: int, documents: DocumentOffsets, like: Tensor) -> Tensor:
    """Return which keys each query of a document attends to, (queries, keys), bool."""
    place = torch.arange(-documents.more_keys, tokens, device=like.device)
    distance = place - place[documents.more_keys :, None]
    near = distance.abs() <= (math.inf if documents.reach is None else documents.reach)
    return near & (distance <= 0) if documents.causal else near
