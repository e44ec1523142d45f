"""The linear-chain CRF against sums and maxima over all labellings, in float64."""

import itertools

import numpy as np
import pytest
import torch

from zoo.nn.layers.crf import IGNORED, crf_negative_log_likelihood, gather_labelled
from zoo.tasks.token_classification.viterbi import marginals, viterbi

LABELS = 3


def path_score(emissions: torch.Tensor, path: tuple[int, ...], transitions: torch.Tensor) -> float:
    """Return the score of one labelling, term by term."""
    score = transitions[LABELS, path[0]] + transitions[path[-1], LABELS]
    for word, label in enumerate(path):
        score = score + emissions[word, label]
    for first, second in itertools.pairwise(path):
        score = score + transitions[first, second]
    return float(score)


def all_scores(emissions: torch.Tensor, transitions: torch.Tensor) -> dict[tuple[int, ...], float]:
    paths = itertools.product(range(LABELS), repeat=len(emissions))
    return {path: path_score(emissions, path, transitions) for path in paths}


@pytest.fixture
def transitions() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(LABELS + 1, LABELS + 1, dtype=torch.float64)


@pytest.mark.parametrize("words", [1, 2, 5])
def test_labels_of_a_sentence(transitions: torch.Tensor, words: int) -> None:
    emissions = torch.randn(words, LABELS, dtype=torch.float64)
    scores = all_scores(emissions, transitions)
    log_partition = float(np.logaddexp.reduce(list(scores.values())))
    labels = tuple(torch.randint(LABELS, (words,)).tolist())
    loss = crf_negative_log_likelihood(emissions[None], torch.tensor([labels]), transitions)
    assert loss.item() == pytest.approx(log_partition - scores[labels], abs=1e-9)

    arrays = emissions.numpy(), transitions.numpy()
    assert tuple(viterbi(*arrays)) == max(scores, key=lambda path: scores[path])
    expected = np.zeros((words, LABELS))
    for path, score in scores.items():
        expected[range(words), path] += np.exp(score - log_partition)
    np.testing.assert_allclose(marginals(*arrays), expected, atol=1e-12)


def test_rows_of_different_lengths_with_other_tokens_between(transitions: torch.Tensor) -> None:
    """Sums over rows are those of each row alone; a row without words adds nothing."""
    logits = torch.randn(3, 6, LABELS, dtype=torch.float64)
    labels = torch.tensor(
        [[IGNORED, 0, IGNORED, 2, 1, IGNORED], [IGNORED] * 6, [IGNORED, 1, 1, IGNORED, 0, 2]]
    )
    losses = crf_negative_log_likelihood(*gather_labelled(logits, labels), transitions)
    for row, loss in enumerate(losses.tolist()):
        chosen = labels[row] != IGNORED
        if not chosen.any():
            assert loss == 0
            continue
        scores = all_scores(logits[row, chosen], transitions)
        path = tuple(labels[row, chosen].tolist())
        assert loss == pytest.approx(
            float(np.logaddexp.reduce(list(scores.values()))) - scores[path], abs=1e-9
        )


def test_gradients_are_those_of_differences(transitions: torch.Tensor) -> None:
    emissions = torch.randn(2, 4, LABELS, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 1, 2, IGNORED], [2, 2, IGNORED, IGNORED]])
    parameter = transitions.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda e, t: crf_negative_log_likelihood(e, labels, t), (emissions, parameter)
    )


def test_transitions_of_zero_label_words_independently() -> None:
    emissions = torch.randn(2, 5, LABELS, dtype=torch.float64)
    labels = torch.randint(LABELS, (2, 5))
    losses = crf_negative_log_likelihood(
        emissions, labels, torch.zeros(LABELS + 1, LABELS + 1, dtype=torch.float64)
    )
    expected = torch.nn.functional.cross_entropy(
        emissions.flatten(0, 1), labels.flatten(), reduction="sum"
    )
    assert losses.sum().item() == pytest.approx(expected.item(), abs=1e-9)
