"""CKA and canonical correlations next to their formulas, and what does not change them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from zoo.metrics.representations import (
    CentredRepresentation,
    canonical_correlations,
    linear_cka,
    pwcca,
    svcca,
)

Floats = NDArray[np.float64]
represent = CentredRepresentation.from_vectors


def related(samples: int, widths: tuple[int, int], seed: int = 0) -> tuple[Floats, Floats]:
    """Return two representations of samples that share some features, neither centred."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(samples, 3))
    first = shared @ rng.normal(size=(3, widths[0])) + 0.7 * rng.normal(size=(samples, widths[0]))
    second = shared @ rng.normal(size=(3, widths[1])) + rng.normal(size=(samples, widths[1]))
    return first + 5, second - 2


def hsic(one: Floats, other: Floats) -> float:
    """Return HSIC of two kernels, equation 1 of Gretton et al. 2005."""
    count = len(one)
    centre = np.eye(count) - 1 / count
    return float(np.trace(one @ centre @ other @ centre) / (count - 1) ** 2)


@pytest.mark.parametrize(("samples", "widths"), [(40, (6, 9)), (8, (12, 5)), (5, (9, 9))])
def test_cka_is_the_ratio_of_hsic(samples: int, widths: tuple[int, int]) -> None:
    x, y = related(samples, widths)
    kernels = (x @ x.T, y @ y.T)
    expected = hsic(*kernels) / np.sqrt(hsic(kernels[0], kernels[0]) * hsic(kernels[1], kernels[1]))
    assert linear_cka(represent(x), represent(y)) == pytest.approx(expected, rel=1e-10)
    assert linear_cka(represent(y), represent(x)) == pytest.approx(expected, rel=1e-10)


def correlations_by_eigenvalues(x: Floats, y: Floats) -> Floats:
    """Return canonical correlations as square roots of eigenvalues of covariances."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    inner = np.linalg.inv(x.T @ x) @ (x.T @ y) @ np.linalg.inv(y.T @ y) @ (y.T @ x)
    values = np.sort(np.linalg.eigvals(inner).real)[::-1]
    return np.asarray(np.sqrt(np.clip(values, 0, 1))[: min(x.shape[1], y.shape[1])])


def test_canonical_correlations_are_those_of_the_covariances() -> None:
    x, y = related(200, (4, 6))
    found = canonical_correlations(represent(x).basis, represent(y).basis)
    np.testing.assert_allclose(found, correlations_by_eigenvalues(x, y), atol=1e-9)


def test_svcca_keeps_the_directions_of_most_variance() -> None:
    x, y = related(200, (5, 6))
    x[:, 0] *= 30  # Of x, few directions explain most.

    def reduced(values: Floats) -> Floats:
        centred = values - values.mean(axis=0)
        variances, vectors = np.linalg.eigh(centred.T @ centred)
        order = np.argsort(variances)[::-1]
        shares = np.cumsum(variances[order]) / variances.sum()
        count = int((shares < 0.99).sum()) + 1
        return np.asarray(centred @ vectors[:, order[:count]])

    assert reduced(x).shape[1] < 5
    expected = correlations_by_eigenvalues(reduced(x), reduced(y)).mean()
    assert svcca(represent(x), represent(y)) == pytest.approx(expected, abs=1e-9)


def test_pwcca_weights_by_the_features_of_the_first() -> None:
    x, y = related(200, (4, 6))
    centred = [values - values.mean(axis=0) for values in (x, y)]
    # Canonical vectors by whitening with inverse square roots, as in the supplement of SVCCA.
    roots = []
    for values in centred:
        variances, vectors = np.linalg.eigh(values.T @ values)
        roots.append(vectors @ np.diag(variances**-0.5) @ vectors.T)
    left, correlations, _ = np.linalg.svd(roots[0] @ centred[0].T @ centred[1] @ roots[1])
    weights = np.abs((centred[0] @ roots[0] @ left).T @ centred[0]).sum(axis=1)
    expected = (weights * correlations).sum() / weights.sum()
    assert pwcca(represent(x), represent(y)) == pytest.approx(expected, abs=1e-9)


def test_rotations_and_scales_keep_cka_and_linear_maps_keep_correlations() -> None:
    x, y = related(100, (5, 5))
    rng = np.random.default_rng(3)
    rotation, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    cka = linear_cka(represent(x), represent(y))
    assert linear_cka(represent(7 * x @ rotation), represent(y)) == pytest.approx(cka, rel=1e-10)
    assert linear_cka(represent(x), represent(0.1 * x @ rotation + 3)) == pytest.approx(1)
    linear = rng.normal(size=(5, 5))
    assert linear_cka(represent(x @ linear), represent(y)) != pytest.approx(cka, rel=1e-3)
    assert pwcca(represent(x), represent(y @ linear + 1)) == pytest.approx(
        pwcca(represent(x), represent(y)), rel=1e-9
    )
    everything = [svcca(represent(values), represent(y), 1.0) for values in (x, x @ linear)]
    assert everything[1] == pytest.approx(everything[0], rel=1e-9)


def test_constant_features_and_few_samples() -> None:
    x, y = related(30, (4, 4))
    constant = np.full((30, 4), 1e6)
    for measure in (linear_cka, svcca, pwcca):
        assert np.isnan(measure(represent(constant), represent(y)))
        with_constants = np.hstack([x, constant])
        assert measure(represent(with_constants), represent(y)) == pytest.approx(
            measure(represent(x), represent(y)), rel=1e-8
        )
    # With no more samples than features, all of what varies correlates.
    few = [represent(values) for values in related(5, (6, 7))]
    assert pwcca(*few) == pytest.approx(1)
    assert few[0].rank == 4
