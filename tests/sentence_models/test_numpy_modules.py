import numpy as np
import pytest

from zoo.sentence_models.numpy_modules import pool
from zoo.sentence_models.pooling import Pooling

# two texts, of 3 tokens and of 1; the values at padding must have no effect
HIDDEN = np.array(
    [[[1, -1], [2, -4], [6, -1]], [[5, -2], [99, 99], [-99, 99]]],
    np.float32,
)
MASK = np.array([[True, True, True], [True, False, False]])
BY_HAND: dict[str, list[list[float]]] = {
    "mean": [[3, -2], [5, -2]],
    "cls": [[1, -1], [5, -2]],
    "max": [[6, -1], [5, -2]],
    "mean_sqrt_len_tokens": [[9 / 3**0.5, -6 / 3**0.5], [5, -2]],
    "weightedmean": [[(1 + 4 + 18) / 6, (-1 - 8 - 3) / 6], [5, -2]],
    "lasttoken": [[6, -1], [5, -2]],
}


@pytest.mark.parametrize("mode", BY_HAND)
def test_pooling_equals_what_is_worked_out_by_hand(mode: str) -> None:
    vectors = pool(HIDDEN, MASK, Pooling(mode=mode))  # type: ignore[arg-type]
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, BY_HAND[mode], rtol=1e-6)


@pytest.mark.parametrize("mode", BY_HAND)
def test_normalised_vectors_have_length_one(mode: str) -> None:
    vectors = pool(HIDDEN, MASK, Pooling(mode=mode, normalize=True))  # type: ignore[arg-type]
    plain = np.array(BY_HAND[mode])
    expected = plain / np.sqrt((plain**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)


def test_a_vector_of_zeros_stays_one() -> None:
    zeros = np.zeros((1, 2, 3), np.float32)
    vectors = pool(zeros, np.ones((1, 2), bool), Pooling(normalize=True))
    assert vectors.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("mode", BY_HAND)
def test_tokens_of_a_prompt_are_not_pooled(mode: str) -> None:
    """Weights are the positions in the whole text."""
    hidden, mask = HIDDEN[:1], np.array([[False, True, True]])
    expected: dict[str, list[float]] = {
        "mean": [4, -2.5],
        "cls": [2, -4],
        "max": [6, -1],
        "mean_sqrt_len_tokens": [8 / 2**0.5, -5 / 2**0.5],
        "weightedmean": [(4 + 18) / 5, (-8 - 3) / 5],
        "lasttoken": [6, -1],
    }
    vectors = pool(hidden, mask, Pooling(mode=mode))  # type: ignore[arg-type]
    np.testing.assert_allclose(vectors, [expected[mode]], rtol=1e-6)


def test_dimensions_are_cut_after_scaling() -> None:
    vectors = pool(HIDDEN, MASK, Pooling(normalize=True, truncate_dim=1))
    np.testing.assert_allclose(vectors, [[3 / 13**0.5], [5 / 29**0.5]], rtol=1e-6)
