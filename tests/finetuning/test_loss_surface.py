"""The loss on lines and planes of weights, next to losses of models that hold these weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, labelled, settings, setup_of
from zoo.errors import SourceError, UsageError
from zoo.finetuning.loss_surface import Grid, RunLosses, StoredWeights, loss_curve
from zoo.io.digests.files import compute_blake3
from zoo.training.state.progress import checkpoint_path
from zoo.training.state.state_dict import unique_state_dict

SHORT = {"max_steps": 6, "eval_steps": 2, "save_total_limit": 9}
WEIGHTS = "model.safetensors"


def direct_loss(run: Path, weights: dict[str, torch.Tensor]) -> float:
    """Return the mean cross-entropy of a classifier with these weights, sample by sample."""
    setup = setup_of(run)
    model = setup.objective.model(setup.family, setup.model_config).double().eval()
    state = unique_state_dict(model)
    assert state.keys() == weights.keys()
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(weights[name])
        losses = []
        for index in range(len(setup.eval_rows)):
            example = setup.eval_rows.example(index, np.random.default_rng(0))
            ids = torch.from_numpy(example.arrays["input_ids"].astype(np.int64))[None]
            (logits,) = model(ids).values()
            label = torch.tensor([int(example.values["labels"])])
            losses.append(torch.nn.functional.cross_entropy(logits, label).item())
    return float(np.mean(losses))


def doubled(path: Path) -> dict[str, torch.Tensor]:
    return {name: tensor.double() for name, tensor in load_file(path).items()}


def initial_weights(run: Path) -> dict[str, torch.Tensor]:
    return doubled(checkpoint_path(run, 0) / "weights.safetensors")


def test_corners_and_points_between_are_losses_of_models(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    one = finetune(tmp_path / "one", settings(model, table, **SHORT))
    scratch = {"random_weights": True, "seed": 3}
    other = finetune(tmp_path / "other", settings(model, table, **SHORT, **scratch))
    surface = zoo.loss_surface(
        one, other, intervals=2, device="cpu", output=tmp_path / "plane.svg", threads=1
    )
    plane = surface.plane
    assert plane is not None
    assert plane.first.tolist() == [-0.5, 0, 0.5, 1, 1.5]
    start, first, second = (
        initial_weights(one),
        *(doubled(r / "model" / WEIGHTS) for r in (one, other)),
    )
    for row, column in ((1, 1), (1, 3), (3, 1), (2, 4)):
        a, b = plane.first[column], plane.second[row]
        weights = {
            name: start[name] + a * (first[name] - start[name]) + b * (second[name] - start[name])
            for name in start
        }
        assert plane.losses[row, column] == pytest.approx(direct_loss(one, weights), rel=1e-5)
    assert "initial" in (tmp_path / "plane.svg").read_text()
    # The path ends at the run's final weights, if the last step is the best.
    flat = {
        step: torch.cat(
            [
                (tensor - start[name]).flatten()
                for name, tensor in doubled(
                    checkpoint_path(one, step) / "weights.safetensors"
                ).items()
            ]
        )
        for step in (2, 4, 6)
    }
    axes = torch.stack(
        [
            torch.cat([(end[name] - start[name]).flatten() for name in start])
            for end in (first, second)
        ]
    )
    for point in plane.path:
        if point.step not in flat:
            continue
        expected = torch.linalg.lstsq(axes.T, flat[point.step]).solution.tolist()
        assert [point.first, point.second] == pytest.approx(expected, abs=1e-6)
    # The data may have moved; another evaluation file has another loss.
    moved = tmp_path / "moved.tsv"
    table.rename(moved)
    with pytest.raises(SourceError, match="if it has moved, name it by --train"):
        zoo.loss_surface(one, device="cpu")
    again = zoo.loss_surface(one, train=moved, intervals=1, margin=0, device="cpu").curves[0]
    assert again.losses == pytest.approx([plane.losses[1, 1], plane.losses[1, 3]], rel=1e-6)
    table.write_bytes(moved.read_bytes())
    # The initial weights of the other run, new ones, are those that it began with.
    losses = RunLosses(other, device="cpu", offline=True)
    begun = initial_weights(other)
    for name, tensor in losses.initial.items():
        assert torch.equal(tensor.double(), begun[name]), name
    curve = loss_curve(losses, Grid(1, 0.0))
    assert curve.losses[0] == pytest.approx(direct_loss(other, begun), rel=1e-5)
    assert curve.losses[1] == pytest.approx(direct_loss(other, second), rel=1e-5)


def test_tied_weights_move_once_and_integers_stay(tmp_path: Path) -> None:
    # The loss of a quadratic function is known: the module is its own reference.
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Linear(2, 2, bias=False)
            self.two = torch.nn.Linear(2, 2, bias=False)
            self.two.weight = self.one.weight
            self.register_buffer("ids", torch.arange(3))

    module = Tied()
    losses = RunLosses.__new__(RunLosses)
    losses.weights = {
        name: tensor
        for name, tensor in unique_state_dict(module).items()
        if tensor.is_floating_point()
    }
    losses.initial = {name: tensor.clone() for name, tensor in losses.weights.items()}
    assert list(losses.weights) == ["one.weight"]
    final = tmp_path / "final.safetensors"
    save_file({"one.weight": torch.ones(2, 2), "ids": torch.tensor([7, 8, 9])}, final)
    losses.evaluate = lambda: 0.0  # type: ignore[method-assign]
    losses.loss([StoredWeights({final: compute_blake3(final)}, tmp_path / "zoo.json")], [1.0])
    assert torch.equal(module.two.weight, torch.ones(2, 2))
    assert module.get_buffer("ids").tolist() == [0, 1, 2]


def refused(message: str, *runs: Path, **options: Any) -> None:
    with pytest.raises(UsageError, match=message):
        zoo.loss_surface(*runs, device="cpu", **options)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    message = r"x\.pdf: a loss surface is written as a page or a picture, or as numbers"
    refused(message, tmp_path, output="x.pdf")
    done = warm.zoo("loss-surface", tmp_path, "--json")
    assert json.loads(done.stdout)["error"].endswith("is not a run: it has no config.yaml")
    assert done.returncode == 4


@pytest.mark.long
def test_what_has_no_surface_is_refused(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    short = {"max_steps": 2, "eval_steps": 2}
    run = finetune(tmp_path / "run", settings(model, table, **short))
    adapter = finetune(
        tmp_path / "adapter", settings(model, table, adapter={"method": "lora"}, **short)
    )
    refused("adapter trained an adapter", adapter)
    rows = (tmp_path / "t.tsv").read_text().replace("\tyes", "\tmaybe", 9)
    (tmp_path / "three.tsv").write_text(rows)
    three = finetune(tmp_path / "three", settings(model, tmp_path / "three.tsv", **short))
    refused("three and .*run have different models: head", run, three)
    table.write_text(table.read_text() + "a b\tyes\n")
    refused(r"t\.tsv is not what .* began with", run)
