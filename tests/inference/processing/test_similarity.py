"""Similarity functions against the distances of SciPy."""

from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from zoo.inference.processing.similarity import (
    LATE_INTERACTION,
    pairwise_similarity,
    similarity_matrix,
)
from zoo.sentence_models.pooling import SimilarityFunction

FUNCTIONS = get_args(SimilarityFunction)


def reference(a: NDArray[np.float64], b: NDArray[np.float64], function: str) -> float:
    """Return the similarity of two vectors, by SciPy's distances."""
    distance: Any = pytest.importorskip("scipy.spatial.distance")
    similarities = {
        "cosine": 1 - distance.cosine(a, b),
        "dot": np.dot(a, b),
        "euclidean": -distance.euclidean(a, b),
        "manhattan": -distance.cityblock(a, b),
    }
    return float(similarities[function])


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f not in LATE_INTERACTION])
def test_similarity_functions(function: SimilarityFunction) -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(4, 7)), rng.normal(size=(5, 7))
    expected = [[reference(a, b, function) for b in second] for a in first]
    np.testing.assert_allclose(similarity_matrix(first, second, function), expected, rtol=1e-9)
    pairs = pairwise_similarity(first, second[:4], function)
    np.testing.assert_allclose(pairs, np.diagonal(expected), rtol=1e-9)
    tensors = torch.from_numpy(first), torch.from_numpy(second[:4])
    np.testing.assert_allclose(pairwise_similarity(*tensors, function), pairs, rtol=1e-9)


def test_the_cosine_with_zeros_is_zero() -> None:
    assert pairwise_similarity(np.zeros(3), np.ones(3), "cosine") == 0
    assert similarity_matrix(np.zeros((1, 3)), np.ones((2, 3)), "cosine").tolist() == [[0, 0]]
