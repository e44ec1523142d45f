"""Positions of a batch that are text, for terms that compare states or attention."""

from collections.abc import Mapping

import torch
from torch import Tensor


def real_tokens(batch: Mapping[str, Tensor], ids: str = "input_ids") -> Tensor:
    """Return which tokens are no padding, (rows, tokens), bool.

    Args:
        batch: tensors of a batch: with ``document_ids`` of packed rows, with an ``attention_mask``
            of padded ones, or with neither where all tokens are text.
        ids: name of the model's first input.
    """
    if "document_ids" in batch:
        return batch["document_ids"] != 0
    if "attention_mask" in batch:
        return batch["attention_mask"] != 0
    return torch.ones(batch[ids].shape[:2], dtype=torch.bool, device=batch[ids].device)


def attention_pairs(batch: Mapping[str, Tensor], *, causal: bool, ids: str = "input_ids") -> Tensor:
    """Return which keys each query may attend to, (rows, 1, tokens, tokens), bool.

    Args:
        batch: see ``real_tokens``.
        causal: whether tokens attend to earlier ones alone.
        ids: name of the model's first input.
    """
    real = real_tokens(batch, ids)
    pairs = real[:, None, :, None] & real[:, None, None, :]
    if "document_ids" in batch:
        documents = batch["document_ids"]
        pairs = pairs & (documents[:, None, :, None] == documents[:, None, None, :])
    return pairs.tril() if causal else pairs


def first_tokens(batch: Mapping[str, Tensor], ids: str = "input_ids") -> Tensor:
    """Return which tokens are the first of a document, (rows, tokens), bool."""
    real = real_tokens(batch, ids)
    if "document_ids" in batch:
        documents = batch["document_ids"]
        new = torch.ones_like(real)
        new[:, 1:] = documents[:, 1:] != documents[:, :-1]
        return real & new
    first = torch.zeros_like(real)
    first[:, 0] = True
    return first & real
