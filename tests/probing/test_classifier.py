"""Probes equal scikit-learn's logistic regression, and stop as the recipe says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, log_loss
from sklearn.preprocessing import StandardScaler

from tests.probing.making import double, random_problem
from zoo.errors import UsageError
from zoo.probing import classifier
from zoo.probing.classifier import Probe, ProbeVectors, score_probe, train_probe
from zoo.probing.settings import ProbeRecipe

L2 = 0.03
EXACT = ProbeRecipe(l2=L2, epochs=1000, learning_rate=0.05, batch_size=1000)
NOTHING = np.zeros(0, np.int64)


def problem(**sizes: int) -> tuple[ProbeVectors, Any, Any, Any, Any]:
    arrays, labels = random_problem(**sizes)
    rows = np.arange(len(labels))[:, None]
    train, evaluation = np.arange(160), np.arange(160, len(labels))
    return ProbeVectors(arrays, rows, train), arrays[0], labels, train, evaluation


def test_a_linear_probe_is_logistic_regression_at_the_optimum() -> None:
    vectors, array, labels, train, evaluation = problem()
    probe = train_probe(
        vectors, labels, train=train, validation=NOTHING, classes=3, recipe=EXACT, seed=0
    )
    scaler = StandardScaler().fit(array[train].astype(np.float64))
    inputs = scaler.transform(array.astype(np.float64))
    regression = LogisticRegression(C=1 / (L2 * len(train)), tol=1e-10, max_iter=10_000)
    regression.fit(inputs[train], labels[train])
    (linear,) = probe.classifier
    assert isinstance(linear, torch.nn.Linear)
    np.testing.assert_allclose(double(linear.weight), regression.coef_, atol=1e-3)
    scores = score_probe(probe, vectors, labels, evaluation)
    expected = regression.predict_proba(inputs[evaluation])
    assert scores.bits == pytest.approx(
        log_loss(labels[evaluation], expected, normalize=False) / np.log(2), rel=1e-3
    )
    guesses = regression.predict(inputs[evaluation])
    assert scores.accuracy == accuracy_score(labels[evaluation], guesses)
    assert scores.f1_macro == pytest.approx(f1_score(labels[evaluation], guesses, average="macro"))


def test_vectors_are_standardized_by_the_training_examples(monkeypatch: Any) -> None:
    arrays, _ = random_problem(layers=2)
    arrays[1][:, 2] = 7.0  # A number that never differs.
    rows = np.stack([np.arange(240), np.arange(240)[::-1]], axis=1)
    train = np.arange(0, 240, 3)
    expected = []
    for array in arrays:
        pairs = array[rows].reshape(240, -1).astype(np.float64)
        expected.append(StandardScaler().fit(pairs[train]).transform(pairs))
    in_memory = ProbeVectors(arrays, rows, train)
    monkeypatch.setattr(classifier, "MAX_BYTES_IN_MEMORY", 0)
    from_file = ProbeVectors(arrays, rows, train)
    selected = np.array([5, 200, 17])
    for vectors in (in_memory, from_file):
        values = vectors.gather(selected)
        assert values.shape == (3, 2, 12)
        np.testing.assert_allclose(values, np.stack(expected, axis=1)[selected], atol=1e-5)


def test_a_mix_finds_the_layer_that_has_the_labels() -> None:
    vectors, _, labels, train, evaluation = problem(layers=3)
    recipe = replace(EXACT, epochs=150, l2=0.001)
    probe = train_probe(
        vectors, labels, train=train, validation=NOTHING, classes=3, recipe=recipe, seed=1
    )
    shares = probe.shares()
    assert sum(shares) == pytest.approx(1)
    assert shares[0] > 0.6
    mix = probe.mix
    assert mix is not None and mix.gamma is not None
    layers = double(vectors.gather(evaluation))
    mixed = float(mix.gamma.detach()) * np.einsum("nlw,l->nw", layers, shares)
    (linear,) = probe.classifier
    assert isinstance(linear, torch.nn.Linear)
    logits = mixed @ double(linear.weight).T + double(linear.bias)
    with torch.no_grad():
        np.testing.assert_allclose(probe(vectors.gather(evaluation)), logits, atol=1e-4)


def test_training_ends_after_four_epochs_without_a_lower_loss(monkeypatch: Any) -> None:
    """The loss of held-out examples is scripted; the best weights are those of its minimum."""
    vectors, _, labels, train, evaluation = problem()
    losses = iter([3.0, 2.0, 2.5, 1.0, 1.5, 1.4, 1.3, 1.2, 0.1])
    weights = []
    rates = []

    def scripted(probe: Probe, *arguments: Any) -> float:
        weights.append(double(next(probe.classifier.parameters())).copy())
        return next(losses)

    step = torch.optim.Adam.step

    def recorded(self: Any, *arguments: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(classifier, "_monitored_loss", scripted)
    monkeypatch.setattr(torch.optim.Adam, "step", recorded)
    recipe = ProbeRecipe(batch_size=1000, learning_rate=0.01)
    probe = train_probe(
        vectors, labels, train=train, validation=evaluation, classes=3, recipe=recipe, seed=0
    )
    assert len(weights) == 8
    assert rates == [0.01] * 3 + [0.005] * 2 + [0.0025, 0.00125, 0.000625]
    np.testing.assert_array_equal(double(next(probe.classifier.parameters())), weights[3])


def test_seeds_differ_and_repeat_without_touching_the_global_generator() -> None:
    vectors, _, labels, train, evaluation = problem()
    recipe = ProbeRecipe(probe="mlp", hidden_size=8, epochs=3)

    def trained(seed: int) -> Any:
        probe = train_probe(
            vectors, labels, train=train, validation=evaluation, classes=3, recipe=recipe, seed=seed
        )
        return double(next(probe.parameters()))

    state = torch.get_rng_state()
    first = trained(0)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first, trained(0))
    assert not np.array_equal(first, trained(1))


def test_a_loss_that_is_no_number_is_an_error() -> None:
    vectors, _, labels, train, _ = problem()
    recipe = ProbeRecipe(learning_rate=3e37, epochs=2, batch_size=10)
    with pytest.raises(UsageError, match="lower --learning-rate"):
        train_probe(
            vectors, labels, train=train, validation=NOTHING, classes=3, recipe=recipe, seed=0
        )
