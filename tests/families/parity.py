"""Assertions that compare families of encoders with the reference library."""

import itertools
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import nn

from zoo.conformance.hf_reference import (
    Difference,
    compare_with_reference,
    hub_state,
    reference_model,
)
from zoo.convert import convert
from zoo.families.base import Family
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.formats import TensorInfo


def random_model(family: Family, config: Any, head: str) -> nn.Module:
    with torch.device("meta"):
        model = family.model(config, head)
    model = model.double().to_empty(device="cpu").eval()
    randomize_weights(model)
    return model


def suited(config: Any, head: str) -> Any:
    """Set two labels for question answering; the reference takes their number as output size."""
    return replace(config, labels=("start", "end")) if head == "question-answering" else config


def assert_equal(
    family: Family,
    config: Any,
    head: str,
    model: nn.Module | None = None,
    inputs: dict[str, torch.Tensor] | None = None,
) -> None:
    """Check that outputs and all hidden states equal the reference library's.

    The absolute tolerance is 1e-9 in float64; the tolerance relative to the largest magnitude is
    1e-5 in float32.

        A given model must have the ``suited`` configuration, and the dtype float64.
    """
    config = suited(config, head)
    model = random_model(family, config, head) if model is None else model
    exact = compare_with_reference(family, config, head, model, inputs=inputs, tolerance=1e-9)
    assert max(d.absolute for d in exact.outputs.values()) <= 1e-9
    assert exact.first_diverging is None
    single = compare_with_reference(family, config, head, model.float(), inputs=inputs)
    assert max(d.relative for d in single.outputs.values()) <= 1e-5
    assert single.first_diverging is None


def assert_equal_at_all_lengths(family: Family, config: Any, head: str) -> None:
    """Check one token, two sequences with padding, and a sequence of maximum length."""
    config = suited(config, head)
    spec = family.onnx(config, head)
    model = random_model(family, config, head)
    reference = reference_model(family, config, head, model.state_dict())
    longest = spec.limits["tokens"]
    for dtype, lengths in itertools.product((torch.float64, torch.float32), ((1,), (17, 9))):
        assert_batch_equal(model.to(dtype), reference.to(dtype), spec, config, lengths)
    # one choice of the longest text suffices
    inputs = random_inputs(spec, config, (longest,))
    if head == "multiple-choice":
        inputs = {name: tensor[:, :1] for name, tensor in inputs.items()}
    with torch.no_grad():
        ours, theirs = model(**inputs), reference(**inputs)
    if any(
        Difference.between(mine, other).relative > 1e-5
        for mine, other in zip(ours.values(), theirs.values(), strict=True)
    ):
        assert_no_farther_from_exact(reference, inputs, ours, theirs)


def assert_no_farther_from_exact(
    reference: nn.Module, inputs: Any, ours: dict[str, torch.Tensor], theirs: Any
) -> None:
    """Check that errors against float64 are at most 1.2 times those of the reference.

    Needed where cancellation makes the reference's own rounding error exceed 1e-5.
    """
    with torch.no_grad():
        exact = reference.double()(**inputs)
    for mine, other, right in zip(ours.values(), theirs.values(), exact.values(), strict=True):
        allowed = max(1e-5, 1.2 * Difference.between(other.double(), right).relative)
        assert Difference.between(mine.double(), right).relative <= allowed


def assert_batch_equal(
    model: nn.Module, reference: nn.Module, spec: Any, config: Any, lengths: tuple[int, ...]
) -> None:
    inputs = random_inputs(spec, config, lengths)
    with torch.no_grad():
        ours, theirs = model(**inputs), reference(**inputs)
    tensors = [value for value in theirs.values() if isinstance(value, torch.Tensor)]
    for mine, other in zip(ours.values(), tensors, strict=True):
        found = Difference.between(mine, other)
        if mine.dtype is torch.float64:
            assert found.absolute <= 1e-9, lengths
        else:
            assert found.relative <= 1e-5, lengths


def published(family: Family, config: Any, head: str) -> dict[str, TensorInfo]:
    """Return the tensors of a checkpoint of the Hub's class, as far as the family's rules read."""
    weights = family.weights(config, head)
    return {
        weights.written(source): TensorInfo("F32", shape)
        for entry in weights.entries()
        for source, shape in zip(entry.sources, entry.source_shapes, strict=True)
    }


def count(family: Family, config: Any, head: str) -> int:
    """Count the parameters of a model, and check that its weight rules name as many."""
    with torch.device("meta"):
        model = family.model(config, head)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert family.weights(config, head).parameters() == found
    return found


def assert_there_and_back(
    family: Family, config: Any, head: str, folder: Path, dtype: str = "float32", **extra: Any
) -> None:
    """Check that Hub -> zoo -> Hub keeps all bits, and that the reference loads the result."""
    config = suited(config, head)
    model = random_model(family, config, head)
    architecture = family.architecture(config, head)
    # by way of float32, because numpy has no bfloat16
    weights = hub_state(family.weights(config, head), model.float().state_dict())
    weights = {name: tensor.to(getattr(torch, dtype)) for name, tensor in weights.items()}
    kind = getattr(transformers, architecture)
    hub = {**family.to_hf(config), **extra, "architectures": [architecture]}
    source, ours, back = folder / "source", folder / "ours", folder / "back"
    source.mkdir()
    save_file({n: t.contiguous() for n, t in weights.items()}, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(hub))
    assert convert(CheckpointDir(source, str(source)), ours).head == head
    convert(CheckpointDir(ours, str(ours)), back, to="hub")
    after = load_file(back / "model.safetensors")
    assert after.keys() == weights.keys()
    assert [name for name, tensor in weights.items() if not torch.equal(after[name], tensor)] == []
    loaded, loading = kind.from_pretrained(back, output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    before = kind.from_pretrained(source).config.to_dict()
    assert loaded.config.to_dict() == {**before, "_name_or_path": str(back)}
    written = json.loads((back / "config.json").read_text())
    assert {key: written.get(key) for key in hub if key not in ("dtype",)} == hub
