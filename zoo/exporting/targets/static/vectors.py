"""Vectors of tokens from an encoder."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.errors import VerificationError
from zoo.inference.processing.batching import MAX_BATCH_TOKENS
from zoo.io.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.exporting.targets.static.vocabulary import StaticVocabulary
    from zoo.inference.session import Session

    Vectors = NDArray[np.float64]
    Pool = Callable[[NDArray[Any]], NDArray[Any]]  # (texts, tokens, width) -> (texts, width)

HIDDEN = "last_hidden_state"


def mean(hidden: "NDArray[Any]") -> "NDArray[Any]":
    """Return the mean of all tokens, (texts, width)."""
    vectors: NDArray[Any] = hidden.mean(1)
    return vectors


def token_vectors(
    session: "Session", vocabulary: "StaticVocabulary", pool: "Pool" = mean
) -> "Vectors":
    """Return the pooled output of an encoder for each token with special ones, (tokens, width)."""
    prefix = vocabulary.prefix
    suffix = vocabulary.suffix
    length = len(prefix) + 1 + len(suffix)
    rows = max(1, MAX_BATCH_TOKENS // length)
    outputs = []
    with progress("embedding", len(vocabulary.ids), unit="tokens") as advance:
        for start in range(0, len(vocabulary.ids), rows):
            part = vocabulary.ids[start : start + rows]
            ids = np.array([[*prefix, number, *suffix] for number in part], np.int64)
            values = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            inputs = {name: values.get(name, np.zeros_like(ids)) for name in session.inputs}
            outputs.append(pool(session.run(inputs, (HIDDEN,))[HIDDEN]))
            advance(len(part))
    vectors = np.concatenate(outputs).astype(np.float64)
    if broken := int((~np.isfinite(vectors).all(1)).sum()):
        raise VerificationError(
            f"the encoder returns values that are not finite for {broken} of {len(vectors)} tokens",
            "zoo verify checks its weights",
        )
    return vectors


def principal_components(vectors: "Vectors", dim: int) -> "Vectors":
    """Return vectors projected on their first principal components, (tokens, dim)."""
    # The sign of a component is such that its largest magnitude is positive. Where there are no
    # more tokens than dimensions, the vectors are returned as they are.
    dim = min(dim, vectors.shape[1])
    if dim >= len(vectors):
        return vectors
    centred = vectors - vectors.mean(0)
    _, axes = np.linalg.eigh(centred.T @ centred / (len(vectors) - 1))
    scores = centred @ axes[:, ::-1][:, :dim]  # the largest variance first
    largest = np.abs(scores).argmax(0)
    projected: Vectors = scores * np.sign(scores[largest, np.arange(dim)])
    return projected


def frequency_weights(tokens: int, coefficient: float | None) -> "Vectors":
    """Return a / (a + p) for each token, with the probability p of its rank by Zipf's law."""
    if coefficient is None:
        return np.ones(tokens)
    inverse = 1 / np.arange(2, tokens + 2)
    weights: Vectors = coefficient / (coefficient + inverse / inverse.sum())
    return weights


def static_vectors(
    session: "Session",
    vocabulary: "StaticVocabulary",
    dim: int | None,
    coefficient: float | None,
    pool: "Pool" = mean,
) -> "Vectors":
    """Return the vector of each token, (tokens, dim); that of the unknown token is zero.

    Args:
        dim: number of principal components; ``None`` for the dimensions of the encoder.
        coefficient: see ``frequency_weights``.
        pool: makes a vector of the outputs for a token and special tokens.
    """
    # The encoder reads each token by itself. Its output is projected on its principal components,
    # and weighted by the frequency that Zipf's law estimates from the token's rank, as in SIF
    # (Arora et al. 2017, section 3). Tulkens and van Dongen 2024, https://github.com/MinishLab.
    vectors = token_vectors(session, vocabulary, pool)
    vectors = vectors - vectors.mean(0) if dim is None else principal_components(vectors, dim)
    vectors = vectors * frequency_weights(len(vectors), coefficient)[:, None]
    if vocabulary.unknown is not None:
        # one library leaves the token out, and sentence-transformers does not: zeros make the sums,
        # and with them the directions, equal
        vectors[vocabulary.unknown] = 0
    return vectors
