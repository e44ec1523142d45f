"""Similarity of sentence embeddings, by the functions of sentence-transformers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.sentence_models.pooling import SimilarityFunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

Array = TypeVar("Array")  # an array of NumPy or a tensor of torch
LATE_INTERACTION = ("maxsim", "meanmaxsim")
COMPARED = 1 << 25  # similarities that are computed at once
ROUNDED_UNITS = 16  # units in the last place
# Relative rounding of the computation in lower precision, whatever the dtype of the embeddings: one
# unit, and in 8 bits two steps of activations, whose scale depends on the other texts of a batch.
ROUNDING = {"float16": 2**-10, "bfloat16": 2**-7, "int8": 2 / 127, "int4": 2 / 127}


def pairwise_similarity(first: Array, second: Array, function: SimilarityFunction) -> Array:
    """Return the similarity of pairs of rows, (...,), for (..., hidden) each.

    It is the negative of a distance. The cosine with a vector of zeros is 0.
    """
    a: Any = first
    b: Any = second
    similarity: Any
    match function:
        case "cosine":
            similarity = (_unit(a) * _unit(b)).sum(-1)
        case "dot":
            similarity = (a * b).sum(-1)
        case "euclidean":
            similarity = -(((a - b) ** 2).sum(-1) ** 0.5)
        case "manhattan":
            similarity = -abs(a - b).sum(-1)
    return similarity  # type: ignore[no-any-return]


def max_sim(query: "Floats", tokens: "Floats", starts: "NDArray[np.int64]") -> "Floats":
    """Return the late-interaction score of each text: sum over the query of the best products.

    This is equation 3 of Khattab and Zaharia 2020, arXiv:2004.12832.

    Args:
        query: (query tokens, width).
        tokens: the tokens of all texts, one text after another, (tokens, width).
        starts: index of the first token of each text, (texts,). Every text has a token.
    """
    import numpy as np

    scores: Floats = np.maximum.reduceat(query @ tokens.T, starts, axis=1).sum(axis=0)
    return scores


def text_similarity(first: "Floats", second: "Floats", function: SimilarityFunction) -> float:
    """Return the similarity of two texts, (width,) each, or (tokens, width) of late interaction."""
    import numpy as np

    if function not in LATE_INTERACTION:
        return float(pairwise_similarity(first, second, function))
    if not len(first) or not len(second):
        return 0.0
    (score,) = max_sim(first, second, np.zeros(1, np.int64))
    if function == "meanmaxsim":
        score = score / len(first)
    return float(score)


def similarity_matrix(
    first: "Floats", second: "Floats", function: SimilarityFunction
) -> "NDArray[np.float64]":
    """Return the similarity of all pairs of n and m rows, (n, m), computed in float64."""
    import numpy as np

    a = first.astype(np.float64)
    b = second.astype(np.float64)
    matrix: NDArray[np.float64]
    match function:
        case "cosine":
            matrix = _unit(a) @ _unit(b).T
        case "dot":
            matrix = a @ b.T
        case "euclidean":
            squares = (a * a).sum(-1)[:, None] + (b * b).sum(-1)
            matrix = -np.sqrt(np.maximum(squares - 2 * (a @ b.T), 0))
        case "manhattan":
            matrix = np.empty((len(a), len(b)))
            for row, vector in zip(matrix, a, strict=True):
                row[:] = pairwise_similarity(b, vector, function)
    return matrix


def similarity_rows(
    first: "Floats", second: "Floats", function: SimilarityFunction, dtype: str = "float32"
) -> "Iterator[tuple[NDArray[np.float64], float]]":
    """Yield the similarities of each row of ``first`` to all of ``second``, (m,), and its error."""
    count = max(1, COMPARED // len(second))
    for start in range(0, len(first), count):
        part = first[start : start + count]
        errors = rounding_error(part, second, function, dtype).tolist()
        yield from zip(similarity_matrix(part, second, function), errors, strict=True)


def compare_pairs(
    anchors: "Floats",
    texts: "Floats",
    negatives: "Floats",
    function: SimilarityFunction,
    dtype: str = "float32",
) -> "tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]":
    """Return the similarity of anchors to their texts and to their negatives, and its error.

    All embeddings are (n, hidden).
    """
    import numpy as np

    exact_anchors = anchors.astype(np.float64)
    near = pairwise_similarity(exact_anchors, texts.astype(np.float64), function)
    far = pairwise_similarity(exact_anchors, negatives.astype(np.float64), function)
    compared_texts = np.concatenate([texts, negatives])
    return near, far, rounding_error(anchors, compared_texts, function, dtype)


def rounding_error(
    first: "Floats", second: "Floats", function: SimilarityFunction, dtype: str = "float32"
) -> "NDArray[np.float64]":
    """Return the difference, (n,), up to which similarities to each row of ``first`` are equal.

    The rows are compared with those of ``second``, (m, hidden). Equal texts get embeddings that
    differ by the rounding of their batch. A few units in the last place of the embeddings, relative
    to their magnitude, cover that.
    """
    import numpy as np

    rounding = ROUNDED_UNITS * float(np.finfo(np.result_type(first, second)).eps)
    unit = max(rounding, ROUNDING.get(dtype, 0.0))
    if function == "cosine":
        return np.full(len(first), unit)
    order = 1 if function == "manhattan" else 2
    first_norms = np.linalg.norm(first.astype(np.float64), order, axis=-1)
    second_norms = np.linalg.norm(second.astype(np.float64), order, axis=-1)
    largest_norm = second_norms.max(initial=0)
    magnitudes: NDArray[np.float64] = first_norms + largest_norm
    if function == "dot":
        magnitudes = first_norms * largest_norm
    return unit * magnitudes


def score_error(scores: "Floats", dtype: str = "float32") -> float:
    """Return the difference up to which scores of a cross-encoder, (n,), are equal."""
    import numpy as np

    unit = ROUNDING.get(dtype, ROUNDED_UNITS * float(np.finfo(np.float32).eps))
    return unit * float(np.abs(scores).max(initial=1.0))


def _unit(vectors: Any) -> Any:
    """Return rows of unit length; rows of zeros are unchanged."""
    length = ((vectors * vectors).sum(-1) ** 0.5)[..., None]
    return vectors / (length + (length == 0))
