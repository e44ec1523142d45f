"""Batches of one shape: losses, metrics and gradients are those without padded positions."""

from typing import Any

import pytest
import torch

from tests.training.cases import cases, dry
from tests.training.runs import small
from zoo.data.rng import generator
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.training.devices import collate_static
from zoo.training.setup import pretrain_setup

pytestmark = pytest.mark.usefixtures("shared_home")
STATEFUL = "bidirectional-lm"  # its batches have as many characters as there are distinct words
CASES = sorted((family, name) for family, name in cases() if name != STATEFUL)


# One objective for each way to build a batch. Other families have the same, and other objectives
# only other noise.
FEW = (
    ("bart", "text-infilling"),
    ("bert", "masked-lm"),
    ("bert", "masked-lm+next-sentence"),
    ("bert", "masked-lm+span-boundary"),
    ("bert", "masked-lm+word-structure"),
    ("electra", "replaced-token-detection"),
    ("gpt", "causal-lm"),
    ("t5", "prefix-lm"),
    ("t5", "span-corruption"),
)


@pytest.mark.by_default("bert-masked-lm", "gpt-causal-lm", "t5-span-corruption")
@pytest.mark.parametrize(
    ("family", "name"),
    [pytest.param(*case, marks=() if case in FEW else pytest.mark.long) for case in CASES],
)
def test_padded_positions_change_nothing(family: str, name: str) -> None:
    setup = pretrain_setup(dry(small(family, objective=name)))
    objective: Any = setup.objective
    torch.manual_seed(0)
    model = objective.model(setup.family, setup.model_config).eval()
    dataset = objective.dataset(setup.corpus.split("train"), seed=0)
    rows = [dataset.example(k, generator(0, k)) for k in range(min(6, len(dataset)))]
    shapes, sizes = set(), set()
    for pair in zip(rows[::2], rows[1::2], strict=False):
        batch, padded = objective.collate(pair), collate_static(objective, pair)
        assert (padded.counts, padded.tokens) == (batch.counts, batch.tokens)
        sizes.add(len(batch.tensors["labels"]))
        names = objective.max_values(batch)
        assert {name: len(padded.tensors[name]) for name in names} == {
            name: 2 * most for name, most in names.items()
        }
        shapes.add(frozenset((name, padded.tensors[name].shape) for name in names))
        with torch.no_grad():
            expected, result = (objective.compute_loss(model, b.tensors) for b in (batch, padded))
        for term, total in expected.sums.items():
            assert float(result.sums[term]) == pytest.approx(float(total), rel=1e-6), term
        for metric, (total, count) in expected.metrics.items():
            assert int(result.metrics[metric][1]) == int(count), metric
            assert float(result.metrics[metric][0]) == pytest.approx(float(total), rel=1e-6), metric
    assert len(shapes) == 1


def test_padding_is_found_behind_the_labels() -> None:
    setup = pretrain_setup(dry(small("bert", objective="masked-lm")))
    objective: Any = setup.objective
    dataset = objective.dataset(setup.corpus.split("train"), seed=0)
    pair = [dataset.example(k, generator(0, k)) for k in range(2)]
    labels = objective.collate(pair).tensors["labels"]
    padded = collate_static(objective, pair).tensors["labels"]
    assert padded[: len(labels)].equal(labels)
    assert set(padded[len(labels) :].tolist()) <= {IGNORED}
    assert len(padded) == 2 * 10  # 15 % of 64 tokens, rounded up


def test_a_row_with_too_many_values_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = pretrain_setup(dry(small("bert", objective="masked-lm")))
    objective: Any = setup.objective
    dataset = objective.dataset(setup.corpus.split("train"), seed=0)
    monkeypatch.setattr(objective, "max_values", lambda batch: {"labels": 1})
    with pytest.raises(AssertionError, match=r"labels has \d+ values, more than the 1 of"):
        collate_static(objective, [dataset.example(0, generator(0, 0))])
