"""What every family must pass, for built-in families and for third parties alike.

A plugin's test file is one class::

    from zoo.testing.conformance import FamilyTests

    class TestMine(FamilyTests):
        family = Mine()
        golden = Path(__file__).parent / "golden"

It runs every check for every head on the family's ``tiny`` size, without the reference library.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from zoo.conformance.smoke_train import smoke_train
from zoo.errors import UsageError
from zoo.export.parts import NEW, with_cache
from zoo.export.trace import Example
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.families.onnx import LOGITS
from zoo.families.random_inputs import CHOICES, axis_lengths, random_inputs, randomize_weights
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.generation import GenerationMixin
from zoo.testing.golden import Golden
from zoo.weights import match_tensors

LENGTHS = (7, 3, 1)
UNLIMITED = 256  # tokens that are tried where a model takes any number


class FamilyTests:
    """Subclass it in a test file and name the family.

    Attributes:
        family: the family under test.
        golden: a directory of golden files, or ``None``.
    """

    family: ClassVar[Family]
    golden: ClassVar[Path | None] = None

    def __init_subclass__(cls) -> None:
        if cls.golden is None:  # then there is no such test, rather than one that is skipped
            cls.test_outputs_equal_the_golden_file = None  # type: ignore[assignment, method-assign]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test that names ``head``, ``size`` or ``golden_file`` for each of them."""
        values: Mapping[str, list[Any]] = {
            "head": list(self.family.heads()),
            "size": list(self.family.sizes()),
            "golden_file": sorted(self.golden.glob("*.safetensors")) if self.golden else [],
        }
        for name in values:  # in one order: parallel runs compare what they collected
            if name not in metafunc.fixturenames:
                continue
            ids = [getattr(value, "stem", value) for value in values[name]]
            metafunc.parametrize(name, values[name], ids=ids)

    @property
    def config(self) -> Any:
        """The configuration that models are built from: ``tiny``, unless a subclass has one."""
        return self.family.sizes()["tiny"]

    def model(self, head: str, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Return a model that is ready to run, with random weights."""
        model = self.family.model(self.config, head).to(dtype).eval()
        randomize_weights(model)
        return model

    def inputs(self, head: str, **options: Any) -> dict[str, Tensor]:
        """Return a batch of three texts of different length."""
        return random_inputs(self.family.onnx(self.config, head), self.config, LENGTHS, **options)

    def run(self, model: nn.Module, inputs: Example) -> dict[str, Tensor]:
        """Run a model without keeping what gradients need."""
        with torch.no_grad():
            return model(**inputs)  # type: ignore[no-any-return]

    # What a family declares

    def test_it_declares_what_commands_need(self) -> None:
        """The names, the size ``tiny`` and the head ``none`` are there."""
        assert self.family.name and self.family.model_types and self.family.default_checkpoint
        assert "tiny" in self.family.sizes(), "tests and demos use the size called tiny"
        assert "none" in self.family.heads(), "the bare trunk is the head called none"
        for size, config in self.family.sizes().items():
            assert type(config) is self.family.config_type, size

    def test_config_survives_the_hub(self, size: str) -> None:
        """A configuration comes back equal from the Hub's keys, written as JSON."""
        config: Config = self.family.sizes()[size]
        hub = json.loads(json.dumps(self.family.to_hf(config)))
        back = self.family.from_hf(hub)
        assert back.config == config
        assert not back.unknown, f"the family writes keys that it does not know: {back.unknown}"

    def test_a_shape_is_refused_by_name_or_runs(self) -> None:
        """No number may be one that makes no sense, such as no layers or half a head."""
        for field in msgspec.structs.fields(self.config):
            for value in (0, -1):
                try:
                    msgspec.convert(value, field.type)
                except msgspec.ValidationError:
                    continue  # it is no number
                try:
                    config = replace(self.config, **{field.name: value})
                except ValueError as error:
                    assert field.name in str(error)
                    continue
                inputs = random_inputs(self.family.onnx(config, "none"), config, LENGTHS)
                found = self.run(self.family.model(config, "none").eval(), inputs)
                assert all(tensor.isfinite().all() for tensor in found.values()), field.name

    # Weights

    def test_rules_name_every_parameter(self, size: str, head: str) -> None:
        """The rules fill exactly the model's tensors, in their shapes, for every size."""
        config = self.family.sizes()[size]
        with torch.device("meta"):
            state = self.family.model(config, head).state_dict()
        entries = self.family.weights(config, head).entries()
        ruled = {entry.target: entry.shape for entry in entries}
        assert len(ruled) == len(entries), "two rules fill one of our tensors"
        assert ruled == {name: tuple(tensor.shape) for name, tensor in state.items()}

    def test_rules_name_each_hub_tensor_once(self, head: str) -> None:
        """No Hub tensor is read twice, or read and left out."""
        weights = self.family.weights(self.config, head)
        read = [source for entry in weights.entries() for source in entry.sources]
        assert len(set(read)) == len(read), "two rules read one tensor"
        assert not set(read) & (weights.aliases().keys() | weights.dropped().keys())
        assert set(weights.aliases().values()) <= set(read), "a tie's owner is read by no rule"

    def test_account_closes_on_what_the_rules_write(self, head: str) -> None:
        """What the rules write, under any wrapper's prefix, they read."""
        weights = self.family.weights(self.config, head)
        hub = {
            weights.written(source): TensorInfo("F32", shape)
            for entry in weights.entries()
            for source, shape in zip(entry.sources, entry.source_shapes, strict=True)
        }
        for wrapper in ("", "module.", "_orig_mod."):
            account = match_tensors(weights, {wrapper + name: info for name, info in hub.items()})
            account.raise_if_incomplete(f"{self.family.name} with head {head}, names {wrapper}...")

    def test_tensors_survive_the_hub_bit_for_bit(self, head: str) -> None:
        """Every tensor comes back from the Hub's layout as it was."""
        random = np.random.default_rng(0)
        for entry in self.family.weights(self.config, head).entries():
            hub = [random.integers(0, 1 << 16, s, np.uint16) for s in entry.source_shapes]
            ours = entry.op.to_ours(hub, entry.shape)
            assert ours.shape == entry.shape, entry.target
            back = entry.op.to_hf(ours)
            assert all(map(np.array_equal, hub, back)) and len(back) == len(hub), entry.target

    def test_weights_survive_a_file(self, head: str, tmp_path: Path) -> None:
        """A model computes the same after its weights were stored and loaded."""
        from safetensors.torch import load_file, save_file

        model, inputs = self.model(head), self.inputs(head)
        save_file(model.state_dict(), tmp_path / "model.safetensors")
        other = self.model(head)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        other.load_state_dict(load_file(tmp_path / "model.safetensors"))
        before, after = self.run(model, inputs), self.run(other, inputs)
        assert all(torch.equal(before[name], after[name]) for name in before)

    # What it computes

    def test_outputs_equal_the_golden_file(self, golden_file: Path) -> None:
        """Outputs are the reference's, to 1e-9 in float64."""
        golden = Golden.read(golden_file)
        config, state = golden.convert(self.family)
        model = self.family.model(config, golden.head).double().eval()
        model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
        inputs = {name: torch.from_numpy(array) for name, array in golden.inputs.items()}
        found = self.run(model, inputs)
        assert found.keys() == golden.outputs.keys()
        for name, expected in golden.outputs.items():
            difference = np.abs(found[name].numpy() - expected).max()
            assert difference <= 1e-9, f"{name} differs by {difference:.1e}"

    def test_outputs_are_as_declared(self, head: str) -> None:
        """Names, order and shapes of the outputs are those of the ONNX declaration."""
        spec = self.family.onnx(self.config, head)
        model, inputs = self.model(head), self.inputs(head)
        assert set(spec.inputs) <= set(inspect.signature(model.forward).parameters)
        longest = {axis: max(along) for axis, along in axis_lengths(spec, LENGTHS).items()}
        sizes = {"batch": len(LENGTHS), "choices": CHOICES, **longest}
        found = self.run(model, inputs)
        assert list(found) == list(spec.outputs)
        assert set(found) <= set(self.family.heads()[head].outputs)
        for name, axes in spec.outputs.items():
            shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
            assert tuple(found[name].shape) == shape, name

    def test_what_writes_reads_in_pieces(self, head: str) -> None:
        """A model that writes scores tokens after those of a cache as it scores all at once."""
        spec, model, inputs = (
            self.family.onnx(self.config, head),
            self.model(head),
            self.inputs(head),
        )
        if not isinstance(model, GenerationMixin) or list(spec.outputs) != [LOGITS]:
            return
        for part in with_cache(model, spec, inputs):
            found = self.run(part.module, part.example)
            assert list(found) == list(part.spec.outputs)
        expected = self.run(model, inputs)[LOGITS][:, -NEW:]
        assert (found[LOGITS] - expected).abs().max() <= 1e-12

    def test_padding_changes_nothing(self, head: str) -> None:
        """A text has the same outputs alone and padded, in a batch with others."""
        spec, model = self.family.onnx(self.config, head), self.model(head)
        batch, lengths = self.run(model, self.inputs(head, tokens=12)), axis_lengths(spec, LENGTHS)
        for row, length in enumerate(LENGTHS):
            real = {axis: slice(along[row]) for axis, along in lengths.items()}

            def cut(
                tensor: Tensor, axes: Sequence[str | int], real: Mapping[str, slice] = real
            ) -> Tensor:
                return tensor[tuple(real.get(str(axis), slice(None)) for axis in axes)]

            alone = {
                name: cut(tensor[row : row + 1], spec.inputs[name])
                for name, tensor in self.inputs(head).items()
            }
            for name, text in self.run(model, alone).items():
                padded = cut(batch[name][row], spec.outputs[name][1:])
                assert (padded - text[0]).abs().max() <= 1e-12, f"{name} of a row of {length}"

    def test_the_longest_input_runs(self, head: str) -> None:
        """An input of the declared length has a place for every token."""
        spec = self.family.onnx(self.config, head)
        longest = spec.limits.get("tokens", UNLIMITED)
        found = self.run(self.model(head), random_inputs(spec, self.config, (longest, 1)))
        assert all(tensor.isfinite().all() for tensor in found.values())

    def test_what_is_left_out_is_neutral(self, head: str) -> None:
        """No mask means all tokens are real; no types means one segment."""
        inputs = self.inputs(head)
        neutral = {"attention_mask": 1, "token_type_ids": 0}
        full = {n: torch.full_like(t, neutral[n]) if n in neutral else t for n, t in inputs.items()}
        short = {n: t for n, t in inputs.items() if n not in neutral}
        model = self.model(head)
        given, left_out = self.run(model, full), self.run(model, short)
        assert all((given[n] - left_out[n]).abs().max() <= 1e-12 for n in given)

    def test_a_row_of_padding_gives_numbers(self, head: str) -> None:
        """A row without any real token does not turn into NaN."""
        inputs = self.inputs(head)
        inputs["attention_mask"][1] = 0
        found = self.run(self.model(head), inputs)
        assert all(tensor.isfinite().all() for tensor in found.values())

    def test_eval_repeats_itself_and_training_drops_out(self, head: str) -> None:
        """Results repeat to the bit in eval; in training each output changes, if dropout is on."""
        model, inputs = self.model(head), self.inputs(head)
        first, again = self.run(model, inputs), self.run(model, inputs)
        trained = self.run(model.train(), inputs)
        dropout = getattr(self.config, "dropout", 0.0) > 0
        for name in first:
            assert torch.equal(first[name], again[name]), f"{name} changes from run to run"
            assert torch.equal(first[name], trained[name]) != dropout, f"{name} in training"

    def test_bfloat16_gives_numbers(self, head: str) -> None:
        """The model runs in bfloat16 and stays there."""
        model, inputs = self.model(head, torch.bfloat16), self.inputs(head)
        for name, tensor in self.run(model, inputs).items():
            assert tensor.dtype is torch.bfloat16 and tensor.isfinite().all(), name

    # Training

    def test_gradients_reach_every_parameter(self, head: str) -> None:
        """Each parameter takes part in what the head returns."""
        model = self.model(head, torch.float32)
        outputs = model(**self.inputs(head)).values()
        # squares, because a plain sum over a normalised axis has no gradient
        sum(((tensor - 1) ** 2).sum() for tensor in outputs).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name

    def test_the_loss_is_finite_and_falls(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A few steps by the recipe of ``tiny`` are learnt from, if the family has recipes."""
        monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
        try:
            self.family.recipe("tiny")
        except UsageError:
            return
        found = smoke_train(self.family, self.config, tmp_path / "run")
        assert np.isfinite(found).all()
        assert np.mean(found[-5:]) < np.mean(found[:5])

    def test_fresh_weights_depend_on_the_seed_alone(self, head: str) -> None:
        """One seed gives one model."""

        def build(seed: int) -> dict[str, Tensor]:
            torch.manual_seed(seed)
            return self.family.model(self.config, head).state_dict()

        first, again, other = build(0), build(0), build(1)
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)
        assert all(tensor.isfinite().all() for tensor in first.values())
