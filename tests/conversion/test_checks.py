"""Tensors that follow from the configuration, in every step of a model's life.

The family is BERT with sinusoidal positions, whose checkpoints transformers reads as BERT's.
"""

from collections.abc import Callable
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import zoo_bert.model
import zoo_bert.weights
from tests.checkpoints import SMALL
from tests.exporting.making import export_onnx
from zoo.checkpoint import load_checkpoint
from zoo.conformance.family_checks import FamilyChecks
from zoo.conformance.smoke_train import SETTINGS, smoke_train
from zoo.conformance.verify import verify
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.inference.load_model import load_model
from zoo.nn.layers.embedding import FixedEmbedding
from zoo.weights import Constant, sinusoidal_positions
from zoo_bert import Bert

POSITIONS = "bert.embeddings.position_embeddings.weight"


def table(config: Any) -> "np.ndarray[Any, np.dtype[np.float32]]":
    return sinusoidal_positions(config.max_positions, config.hidden_size)


@pytest.fixture(autouse=True)
def sinusoidal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give BERT sinusoidal positions; the function changes the constant."""
    build, weights = zoo_bert.model.build, zoo_bert.weights.weights

    def sinusoidal_model(config: Any, head: str) -> Any:
        model = build(config, head)
        model.embeddings.positions = FixedEmbedding(table(config))
        return model

    def patch(**changes: Any) -> None:
        def sinusoidal_weights(config: Any, head: str) -> Any:
            learned = weights(config, head)
            rules = [rule for rule in learned.rules if rule.source != POSITIONS]
            shape = (config.max_positions, config.hidden_size)
            constant = Constant(POSITIONS, shape, lambda: table(config), "sines and cosines")
            return changed(learned, rules=rules).plus(constants=[changed(constant, **changes)])

        monkeypatch.setattr(zoo_bert.weights, "weights", sinusoidal_weights)

    monkeypatch.setattr(zoo_bert.model, "build", sinusoidal_model)
    patch()
    return patch


def from_hub(path: Path) -> CheckpointDir:
    return CheckpointDir(path, str(path))


def write_source(path: Path, dtype: torch.dtype = torch.float32) -> transformers.BertForMaskedLM:
    torch.manual_seed(0)
    model: Any = transformers.BertForMaskedLM(transformers.BertConfig(**SMALL))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    width, count = SMALL["hidden_size"], SMALL["max_position_embeddings"]
    positions = torch.from_numpy(sinusoidal_positions(count, width))
    model.bert.embeddings.position_embeddings.weight.data.copy_(positions)
    model.to(dtype).save_pretrained(path)
    return model.eval()


def change_source(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def outcomes(path: Path) -> dict[str, str]:
    return {check.name: check.outcome for check in verify(path)}


@pytest.mark.parametrize("stored", [True, False])
def test_a_source_may_have_the_tensor_or_lack_it(stored: bool, tmp_path: Path) -> None:
    model = write_source(tmp_path / "source")
    if not stored:
        change_source(tmp_path / "source", lambda tensors: tensors.pop(POSITIONS))
    report = convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    assert report.mapping_record()["constants"] == (
        {POSITIONS: "sines and cosines"} if stored else {}
    )
    assert "embeddings.positions.weight" not in load_file(tmp_path / "ours" / "model.safetensors")
    assert set(outcomes(tmp_path / "ours").values()) == {"ok"}
    ours = load_model(load_checkpoint(tmp_path / "ours"))
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 7, 3]])}
    with torch.no_grad():
        expected, actual = model(**inputs).logits, ours(**inputs)["logits"]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_tensor_comes_back_from_the_layout_of_the_hub(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    write_source(tmp_path / "source", dtype)
    convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    convert(from_hub(tmp_path / "ours"), tmp_path / "back", to="hub")
    before, after = (load_file(tmp_path / n / "model.safetensors") for n in ("source", "back"))
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    kind: Any = transformers.BertForMaskedLM
    _, loading = kind.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    model = load_model(load_checkpoint(tmp_path / "ours"))
    with torch.no_grad():
        assert model(input_ids=torch.tensor([[2, 5, 3]]))["logits"].dtype is dtype


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf")])
def test_another_value_is_refused_by_name(value: float, tmp_path: Path) -> None:
    write_source(tmp_path / "source")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[POSITIONS][3, 4] = value

    change_source(tmp_path / "source", change)
    with pytest.raises(VerificationError, match=rf"{POSITIONS} \(sines and cosines\) differs"):
        convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    write_source(tmp_path / "source")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[POSITIONS] = tensors[POSITIONS][:-1].clone()

    change_source(tmp_path / "source", change)
    with pytest.raises(VerificationError, match=f"{POSITIONS} 39x32, not 40x32"):
        convert(from_hub(tmp_path / "source"), tmp_path / "ours")


def test_a_tolerance_accepts_what_another_library_rounds(
    sinusoidal: Callable[..., None], tmp_path: Path
) -> None:
    write_source(tmp_path / "source")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[POSITIONS] += 1e-6

    change_source(tmp_path / "source", change)
    with pytest.raises(VerificationError, match="differs by up to"):
        convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    sinusoidal(tolerance=2e-6)
    convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    assert set(outcomes(tmp_path / "ours").values()) == {"ok"}


def test_a_tensor_that_the_layout_lacks_is_read_and_not_written(
    sinusoidal: Callable[..., None], tmp_path: Path
) -> None:
    sinusoidal(written=False)
    write_source(tmp_path / "source")
    convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    convert(from_hub(tmp_path / "ours"), tmp_path / "back", to="hub")
    assert POSITIONS not in load_file(tmp_path / "back" / "model.safetensors")


@pytest.mark.long
def test_a_trained_model_has_the_tensor_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen in training, and computed where a checkpoint is loaded or exported."""
    monkeypatch.setitem(SETTINGS, "max_steps", 2)
    smoke_train(Bert(), Bert().sizes()["tiny"], tmp_path / "run")
    model = tmp_path / "run" / "model"
    assert set(outcomes(model).values()) == {"ok"}
    export_onnx(load_checkpoint(model), tmp_path / "graph")  # whose outputs it compares
    convert(from_hub(model), tmp_path / "hub", to="hub")
    tensors = load_file(tmp_path / "hub" / "model.safetensors")
    config = load_checkpoint(model).config
    assert torch.equal(tensors[POSITIONS], torch.from_numpy(table(config)))


@pytest.mark.by_default("none")
@pytest.mark.parametrize("head", ["none", "masked-lm"])
def test_the_checks_of_families_accept_a_constant(head: str, tmp_path: Path) -> None:
    class Checks(FamilyChecks):
        family = Bert()

    checks = Checks()
    for check in (
        partial(checks.check_rules_cover_parameters, "tiny", head),
        partial(checks.check_rules_read_tensors_once, head),
        partial(checks.check_exported_names_are_read, head),
        partial(checks.check_constants, head),
        partial(checks.check_gradients, head),
        partial(checks.check_bfloat16, head),
        partial(checks.check_state_dict_round_trip, head, tmp_path),
        partial(checks.check_reference_outputs, head, {}, None),
    ):
        check()
    assert Bert().weights(checks.config, head).constant_tensors().keys() >= {POSITIONS}


def test_a_constant_of_the_rules_differs_from_that_of_a_new_model() -> None:
    """BERT's own positions are drawn at random."""

    class Checks(FamilyChecks):
        family = Bert()

    with pytest.raises(VerificationError, match=f"constant {POSITIONS} differs by"):
        Checks().check_published_tensors("masked-lm")


@pytest.mark.parametrize("width", [8, 7])
def test_sinusoidal_positions_are_those_of_pegasus_and_distilbert(width: int) -> None:
    from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
    from transformers.models.pegasus.modeling_pegasus import PegasusSinusoidalPositionalEmbedding

    halves = PegasusSinusoidalPositionalEmbedding(600, width).create_weight()
    assert np.array_equal(sinusoidal_positions(600, width), halves.numpy())
    if width % 2 == 0:
        alternating = torch.empty(600, width)
        create_sinusoidal_embeddings(600, width, alternating)
        assert np.array_equal(sinusoidal_positions(600, width, interleaved=True), alternating)
