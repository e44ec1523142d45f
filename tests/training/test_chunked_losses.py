"""Runs whose logits are held in chunks: equal losses for every objective, and an exact resume."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.families.every import representative
from tests.training.cases import cases, dry
from tests.training.runs import assert_same, cut, run_training, small
from zoo.data.rng import generator
from zoo.nn import row_chunks
from zoo.nn.heads import VocabularyProjection
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.setup import pretrain_setup

pytestmark = pytest.mark.usefixtures("shared_home")


def predicting() -> Iterator[Any]:
    """Yield a family for each objective with a head over the vocabulary."""
    learners = dict[str, list[str]]()
    for family, name in sorted(cases()):
        learners.setdefault(name, []).append(family)
    for name, families in learners.items():
        yield pytest.param(representative(families), name, id=name)


@pytest.mark.by_default("masked-lm", "span-corruption", "causal-lm", "replaced-token-detection")
@pytest.mark.parametrize(("family", "name"), list(predicting()))
def test_every_objective_has_the_same_losses_and_gradients(
    family: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = pretrain_setup(dry(small(family, objective=name)))
    torch.manual_seed(0)
    model = setup.objective.model(setup.family, setup.model_config).eval()
    dataset = setup.objective.dataset(setup.corpus.split("train"), seed=0)
    batch = setup.objective.collate([dataset.example(k, generator(0, k)) for k in range(2)])

    def step() -> tuple[dict[str, float], dict[str, Tensor], bool]:
        model.zero_grad()
        outputs = setup.objective.forward(model, batch.tensors)
        result = setup.objective.loss(outputs, batch.tensors)
        torch.stack(list(result.sums.values())).sum().backward()  # type: ignore[no-untyped-call]
        numbers = {term: float(total.detach()) for term, total in result.sums.items()}
        numbers |= {key: float(sum_) / float(n) for key, (sum_, n) in result.metrics.items()}
        gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
        chunked = [isinstance(part, VocabularyProjection) for part in outputs.logits.values()]
        return numbers, gradients, True in chunked

    expected, gradients, chunked = step()
    assert not chunked
    monkeypatch.setattr(row_chunks, "LOGITS_AT_ONCE", 8 * setup.model_config.vocab_size)
    numbers, others, chunked = step()
    assert chunked
    assert numbers == pytest.approx(expected, rel=1e-6)
    assert others.keys() == gradients.keys()
    for key, gradient in gradients.items():
        assert (others[key] - gradient).abs().max() <= 1e-5 * gradient.abs().max() + 1e-9, key


@pytest.mark.long
def test_a_run_with_chunks_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_chunks, "LOGITS_AT_ONCE", 40 * 400)
    whole = run_training(tmp_path / "whole", "gpt", max_steps=6)
    broken = run_training(tmp_path / "broken", "gpt", max_steps=6)
    cut(broken, 3)
    PretrainRun({}, DistContext(0, 1, torch.device("cpu"))).resume(broken)
    assert_same(whole, broken)
