"""Similarity of two representations of the same samples: CKA and canonical correlations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
EXPLAINED_VARIANCE = 0.99  # Of the directions that SVCCA keeps, as in Raghu et al. 2017.
# Singular values below this part of the largest one are rounding errors.
RELATIVE_TOLERANCE = 1e-10


@dataclass(frozen=True)
class CentredRepresentation:
    """A centred representation, and an orthonormal basis of what its features span.

    Attributes:
        basis: left singular vectors, (samples, rank), in descending order of singular values.
        singular_values: (rank,).
        coordinates: the features, each with a mean of 0, in that basis, (rank, features).
    """

    basis: Floats
    singular_values: Floats
    coordinates: Floats

    @classmethod
    def from_vectors(cls, vectors: NDArray[np.floating[Any]]) -> "CentredRepresentation":
        """Return the representation of vectors, (samples, features)."""
        values = vectors.astype(np.float64)
        values -= values.mean(axis=0)
        left, singular_values, right = np.linalg.svd(values, full_matrices=False)
        # Constant features leave rounding errors of the size of their values.
        size = float(np.abs(vectors).max(initial=0.0))
        limit = RELATIVE_TOLERANCE * max(float(singular_values.max(initial=0.0)), size)
        rank = int((singular_values > limit).sum())
        coordinates = singular_values[:rank, None] * right[:rank]
        return cls(left[:, :rank], singular_values[:rank], coordinates)

    @property
    def rank(self) -> int:
        """Number of independent features; 0 if all are constant."""
        return len(self.singular_values)

    def principal(self, variance: float) -> Floats:
        """Return the basis of the fewest directions with a part of the variance, (samples, k)."""
        shares = np.cumsum(self.singular_values**2) / (self.singular_values**2).sum()
        count = int(np.searchsorted(shares, variance * (1 - 1e-12))) + 1
        return self.basis[:, :count]


def linear_cka(first: CentredRepresentation, second: CentredRepresentation) -> float:
    """Return the linear centred kernel alignment, from 0 to 1; NaN if either is constant.

    HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of the kernels K = X X^T and L = Y Y^T, which is
    ||Y^T X||^2 / (||X^T X|| ||Y^T Y||) for centred X and Y (Kornblith et al. 2019,
    arXiv:1905.00414, section 3). Rotations and one common scale of the features change nothing.
    """
    if not first.rank or not second.rank:
        return float("nan")
    # In the bases of both, the products are of a size of the ranks.
    product = (first.basis.T @ second.basis) * first.singular_values[:, None]
    product = product * second.singular_values
    norms = np.linalg.norm(first.singular_values**2) * np.linalg.norm(second.singular_values**2)
    return min(float((product**2).sum() / norms), 1.0)  # Rounding errors may exceed 1.


def canonical_correlations(first: Floats, second: Floats) -> Floats:
    """Return the canonical correlations of two orthonormal bases, in descending order."""
    correlations = np.linalg.svd(first.T @ second, compute_uv=False)
    return np.asarray(np.clip(correlations, 0, 1))


def svcca(
    first: CentredRepresentation,
    second: CentredRepresentation,
    variance: float = EXPLAINED_VARIANCE,
) -> float:
    """Return the mean canonical correlation of the main directions; NaN if either is constant.

    The directions of each representation that explain ``variance`` are kept (Raghu et al. 2017,
    arXiv:1706.05806, section 2).
    """
    if not first.rank or not second.rank:
        return float("nan")
    bases = (first.principal(variance), second.principal(variance))
    return float(canonical_correlations(*bases).mean())


def pwcca(first: CentredRepresentation, second: CentredRepresentation) -> float:
    """Return the mean canonical correlation, weighted by how much of the first one it explains.

    The weight of a canonical vector h is the sum of |<h, x>| over the features x of the first
    representation (Morcos et al. 2018, arXiv:1806.05759, section 2.2), as in the paper; its code
    weights by the representation of lower rank. NaN if either is constant. Invertible linear maps
    of the second representation change nothing.
    """
    if not first.rank or not second.rank:
        return float("nan")
    left, correlations, _ = np.linalg.svd(first.basis.T @ second.basis, full_matrices=False)
    # Inner products of the canonical vectors, basis @ left, with the features.
    weights = np.abs(left.T @ first.coordinates).sum(axis=1)
    return float((np.clip(correlations, 0, 1) * weights).sum() / weights.sum())


MEASURES = {"cka": linear_cka, "svcca": svcca, "pwcca": pwcca}


def similarity_matrices(
    first: Sequence[CentredRepresentation], second: Iterable[CentredRepresentation]
) -> dict[str, Floats]:
    """Return each of ``MEASURES`` for all pairs of representations, (first, second) each.

    Of ``second``, one is in memory at a time if it is an iterator.
    """
    columns: dict[str, list[list[float]]] = {name: [] for name in MEASURES}
    for other in second:
        for name, measure in MEASURES.items():
            columns[name].append([measure(one, other) for one in first])
    return {name: np.array(values).T for name, values in columns.items()}
