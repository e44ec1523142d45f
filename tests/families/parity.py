"""Assertions that compare families of encoders with the reference library."""

import inspect
import itertools
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import nn

from zoo.checkpoint.generation_config import GenerationConfig
from zoo.conformance.comparison import TensorDifference, compare_models
from zoo.conformance.hf_reference import keep_float64, reference_model
from zoo.conversion.convert import convert
from zoo.families.base import Family
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.hub.source import CheckpointDir
from zoo.inference.generation.generate import generate
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.layers.skip_init import SkipInit, init_empty_weights

NOTHING: Mapping[str, tuple[int, ...]] = MappingProxyType({})


def random_model(family: Family, config: Any, head: str) -> nn.Module:
    with SkipInit():  # which sets the buffers, such as sinusoidal positions
        model = family.model(config, head).double().eval()
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
    reference = reference_model(family, config, head, model.state_dict())
    exact = compare_models(family, config, head, model, reference, inputs, tolerance=1e-9)
    assert max(d.absolute for d in exact.outputs.values()) <= 1e-9
    assert exact.first_diverging is None
    single = compare_models(family, config, head, model.float(), reference.float(), inputs)
    assert max(d.relative for d in single.outputs.values()) <= 1e-5
    assert single.first_diverging is None


def assert_positions_skip_padding(family: Family, config: Any, padding: int = 1) -> None:
    """Check that positions do not count padding, wherever in a row it is."""
    model = random_model(family, config, "none")
    reference = reference_model(family, config, "none", model.state_dict())
    ids = torch.tensor([[padding, padding, 7, 8, padding, 9], [4, 5, 6, padding, padding, padding]])
    mask = (ids != padding).long()
    with torch.no_grad():
        ours = model(ids, mask)["last_hidden_state"]
        theirs = reference(ids, mask).last_hidden_state
    assert (ours - theirs).abs().max() <= 1e-9


def assert_generation_equals_the_reference(family: Family, config: Any, padding: int = 3) -> None:
    """Check greedy search of 12 tokens; a prompt that is padded on the left is as alone."""
    model: Any = random_model(family, config, "causal-lm")
    reference: Any = reference_model(family, config, "causal-lm", model.state_dict())
    ids = torch.tensor([[padding, padding, 7, 8, 9], [11, 12, 13, 14, 15]])
    expected = []
    for prompt in (ids[:1, 2:], ids[1:]):
        sequence = reference.generate(
            prompt, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=padding
        )
        expected.append(sequence[0, prompt.shape[1] :].tolist())
    inputs = {"input_ids": ids, "attention_mask": (ids != padding).long()}
    settings = GenerationConfig(max_new_tokens=12)
    assert generate(model, inputs, settings, eos_token_ids=[]) == expected


def assert_equal_at_all_lengths(family: Family, config: Any, head: str) -> None:
    """Check one token, two sequences with padding, and a sequence of maximum length."""
    config = suited(config, head)
    spec = family.onnx(config, head)
    model = random_model(family, config, head)
    reference: Any = reference_model(family, config, head, model.state_dict())
    reference.config.use_cache = False  # Of a decoder, which would return it as an output.
    longest = spec.limits["tokens"]
    for dtype, lengths in itertools.product((torch.float64, torch.float32), ((1,), (17, 9))):
        narrow(reference, dtype)
        assert_batch_equal(
            model.to(dtype),
            reference,
            spec,
            config,
            lengths,
            partial(family.reference_inputs, head, reference_config=reference.config),
        )
    # BigBird's reference keeps the dense attention that it has taken for a short text.
    reference = reference_model(family, config, head, model.state_dict())
    reference.config.use_cache = False
    narrow(reference, torch.float32)
    # one choice of the longest text suffices
    inputs = random_inputs(spec, config, (longest,))
    if head == "multiple-choice":
        inputs = {name: tensor[:, :1] for name, tensor in inputs.items()}
    reference_inputs = family.reference_inputs(head, inputs, reference.config)
    with torch.no_grad():
        ours, theirs = model(**inputs), reference(**reference_inputs)
    if any(
        TensorDifference.between(mine, other).relative > 1e-5
        for mine, other in zip(ours.values(), theirs.values(), strict=True)
    ):
        assert_no_farther_from_exact(reference, reference_inputs, ours, theirs)


def narrow(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert the tensors of float64; constants that are in float32 in any model stay so."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dtype is torch.float64:
            tensor.data = tensor.data.to(dtype)


def assert_no_farther_from_exact(
    reference: nn.Module, inputs: Any, ours: dict[str, torch.Tensor], theirs: Any
) -> None:
    """Check that errors against float64 are at most 1.2 times those of the reference.

    Needed where cancellation makes the reference's own rounding error exceed 1e-5.
    """
    with torch.no_grad():
        exact = reference.double()(**inputs)
    for mine, other, right in zip(ours.values(), theirs.values(), exact.values(), strict=True):
        allowed = max(1e-5, 1.2 * TensorDifference.between(other.double(), right).relative)
        assert TensorDifference.between(mine.double(), right).relative <= allowed


def assert_batch_equal(
    model: nn.Module,
    reference: nn.Module,
    spec: Any,
    config: Any,
    lengths: tuple[int, ...],
    reference_inputs: Callable[..., Mapping[str, torch.Tensor]] = dict,
) -> None:
    inputs = random_inputs(spec, config, lengths)
    with torch.no_grad():
        ours = model(**inputs)
        with keep_float64():
            theirs = reference(**reference_inputs(inputs))
    tensors = [value for value in theirs.values() if isinstance(value, torch.Tensor)]
    for mine, other in zip(ours.values(), tensors, strict=True):
        difference = TensorDifference.between(mine, other)
        if mine.dtype is torch.float64:
            assert difference.absolute <= 1e-9, lengths
        else:
            assert difference.relative <= 1e-5, lengths


def save_reference(
    family: Family, config: Any, head: str, folder: Path, dtype: str = "float32", **extra: Any
) -> dict[str, Any]:
    """Write a random checkpoint by the reference library alone; return its configuration."""
    kind = getattr(transformers, family.architecture(config, head))
    hub = {**family.to_hub(config), **extra, "architectures": [kind.__name__]}
    parts = {}
    if "add_pooling_layer" in inspect.signature(kind).parameters:
        parts["add_pooling_layer"] = "pooler_output" in family.onnx(config, head).outputs
    model = kind(kind.config_class(**hub), **parts)
    if hub.get("tie_word_embeddings") is False and (output := model.get_output_embeddings()):
        output.weight = nn.Parameter(output.weight.clone())  # in T5, which ties without regard
    model.to(getattr(torch, dtype))
    for parameter in model.parameters():
        if parameter.requires_grad:  # constants, such as sinusoidal positions, stay
            nn.init.normal_(parameter)
    for module in model.modules():  # one bias under two names in released files, tied or not
        decoder = getattr(module, "decoder", None)
        bias = getattr(module, "bias", None)
        if isinstance(decoder, nn.Linear) and isinstance(bias, nn.Parameter):
            bias.data.copy_(decoder.bias)
    model.save_pretrained(folder)
    return hub


def published(family: Family, config: Any, head: str) -> dict[str, TensorInfo]:
    """Return names and shapes of the tensors that the reference library writes."""
    with TemporaryDirectory() as folder:
        save_reference(family, suited(config, head), head, Path(folder))
        tensors = load_file(Path(folder) / "model.safetensors")
    return {name: TensorInfo("F32", tuple(tensor.shape)) for name, tensor in tensors.items()}


def count(family: Family, config: Any, head: str) -> int:
    """Count the parameters of a model, and check that its weight rules name as many."""
    with init_empty_weights():
        model = family.model(config, head)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert family.weights(config, head).parameters() == total
    return total


def assert_there_and_back(
    family: Family,
    config: Any,
    head: str,
    folder: Path,
    dtype: str = "float32",
    released: Mapping[str, tuple[int, ...]] = NOTHING,
    **extra: Any,
) -> None:
    """Check that Hub -> zoo -> Hub keeps all bits, and that the reference loads the result.

    Args:
        family: the family.
        config: its configuration.
        head: name of the head.
        folder: where to write.
        dtype: of the source.
        released: shapes of tensors that released files have and the reference does not write.
        extra: further keys of the configuration.
    """
    config = suited(config, head)
    source, ours, back = folder / "source", folder / "ours", folder / "back"
    hub = save_reference(family, config, head, source, dtype, **extra)
    weights = load_file(source / "model.safetensors")
    for name, shape in released.items():
        weights[name] = torch.randn(shape).to(getattr(torch, dtype))
    save_file(weights, source / "model.safetensors")
    assert convert(CheckpointDir(source, str(source)), ours).head == head
    convert(CheckpointDir(ours, str(ours)), back, to="hub")
    after = load_file(back / "model.safetensors")
    assert after.keys() == weights.keys()
    assert [name for name, tensor in weights.items() if not torch.equal(after[name], tensor)] == []
    kind = getattr(transformers, family.architecture(config, head))
    loaded, loading = kind.from_pretrained(back, output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    before = kind.from_pretrained(source).config.to_dict()
    assert loaded.config.to_dict() == {**before, "_name_or_path": str(back)}
    expected, written = (json.loads((path / "config.json").read_text()) for path in (source, back))
    table = family.config_maps.get(family.model_type(config), family.config_map)
    # older spellings are written back where a file has them
    unwritten = set(table.both) - expected.keys()
    # the reference leaves out labels with default names, and writes lists for some strings
    for key, value in hub.items():
        if key in unwritten:
            continue
        assert written.get(key) in (value, expected.get(key, value)), key
