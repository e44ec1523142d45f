"""Samples of tokens from logits, one uniform number each."""

import torch
from torch import Tensor

from zoo.nn.heads import VocabularyProjection
from zoo.nn.row_chunks import chunked_logits


def sample_from_logits(logits: Tensor, uniforms: Tensor, temperature: float = 1.0) -> Tensor:
    """Sample a token from each row's softmax by inversion.

    The sample is the first token whose cumulative probability exceeds the uniform number, never one
    of probability zero. If rounding leaves no such token, it is the last one of nonzero
    probability.

    Args:
        logits: (n, vocabulary), float32.
        uniforms: (n,), float32, in [0, 1).
        temperature: what the logits are divided by.

    Returns:
        Tokens, (n,), int64.
    """
    cumulated = _cumsum((logits / temperature).softmax(-1))
    total = cumulated[:, -1:].contiguous()
    samples = torch.searchsorted(cumulated, uniforms[:, None] * total, right=True)
    last_tokens = torch.searchsorted(cumulated, total)
    return samples.minimum(last_tokens)[:, 0]


def _cumsum(rows: Tensor) -> Tensor:
    """Return the sums along rows, also where torch is set to deterministic kernels."""
    # There, torch refuses cumulative sums of floating-point numbers on CUDA, although they only
    # vary for a single row (its issue 75240).
    deterministic = torch.are_deterministic_algorithms_enabled()
    if not deterministic or not rows.is_cuda:
        return rows.cumsum(-1)
    torch.use_deterministic_algorithms(False)
    try:
        return rows.cumsum(-1)
    finally:
        torch.use_deterministic_algorithms(True)


def sample_tokens(
    logits: Tensor | VocabularyProjection, uniforms: Tensor, temperature: float
) -> Tensor:
    """Return ``sample_from_logits``, for some positions at a time where there are too many."""
    if isinstance(logits, torch.Tensor):
        return sample_from_logits(logits, uniforms, temperature)
    samples = []
    for rows, row_logits in chunked_logits(logits):
        samples.append(sample_from_logits(row_logits, uniforms[rows], temperature))
    return torch.cat(samples)
