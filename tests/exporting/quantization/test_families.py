"""Fused and int8 graphs of several families: the edges of their shapes, and what is quantized."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from tests.exporting.conftest import Exported, exported_once
from tests.exporting.graph.making import batch, made
from tests.exporting.making import export_onnx
from tests.inference.making import make_checkpoint, store
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.exporting.quantization.quantize import quantizable, quantize
from zoo.families.random_inputs import axis_lengths, random_inputs
from zoo.inference import Session, load_session
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SessionDecoder
from zoo.inference.generation.generate import generate
from zoo.plugins import get_family

INT8, INT4 = Quantization("int8"), Quantization("int4")
LONGEST = 70  # tokens of models without a limit, beyond the buckets of relative positions


def deberta(path: Path) -> Checkpoint:
    return make_checkpoint(path, "none", family=get_family("deberta"), num_layers=1)


MAKERS: dict[str, Callable[[Path], Checkpoint]] = {
    "deberta": deberta,
    "gpt": partial(made, "second"),
    "t5": partial(made, "plain", layers=1),
}


@pytest.fixture(scope="module")
def exported() -> Callable[[str], Exported]:
    """Return a cached function from a family to a fused and quantized export."""

    @cache
    def export(name: str) -> Exported:
        plan = QuantizationPlan([INT8, INT4] if name == "t5" else [INT8], max_drop=1.0)
        return exported_once(f"int8-{name}", MAKERS[name], optimize=True, quantization=plan)

    return export


def rows(
    checkpoint: Checkpoint, sessions: list[Session], lengths: list[int]
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the outputs of sessions for each row of a batch, without padding."""
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    drawn = random_inputs(spec, checkpoint.config, lengths, seed=len(lengths))
    inputs = {name: tensor.numpy() for name, tensor in drawn.items()}
    outputs = [session.run(inputs) for session in sessions]
    along = axis_lengths(spec, lengths)
    for name, axes in spec.outputs.items():
        for row in range(len(lengths)):
            real = along[str(axes[1])][row] if axes[1] in along else None
            yield tuple(output[name][row][:real] for output in outputs)


SHAPES = [  # numbers of tokens; negative ones count from the longest
    *((1,), (2, -1, 1, -2)),
    *(pytest.param(shape, marks=pytest.mark.long) for shape in ((-1,), (1, 1, 1), (-1, 1))),
]


# test_quantize.py has the int8 graph of a GPT.
NAMES = ("deberta", pytest.param("gpt", marks=pytest.mark.long), "t5")


@pytest.mark.by_default("t5")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_fused_and_int8_graphs_at_the_edges(
    exported: Callable[[str], Exported], name: str, shape: tuple[int, ...]
) -> None:
    checkpoint, graph, _ = exported(name)
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    longest = spec.limits.get("tokens", LONGEST)
    lengths = [tokens if tokens > 0 else longest + 1 + tokens for tokens in shape]
    dtypes = (None, "int8")
    sessions = [load_session(checkpoint, "cpu"), *(load_session(graph, dtype=d) for d in dtypes)]
    for expected, fused, int8 in rows(checkpoint, sessions, lengths):
        assert expected.shape == fused.shape == int8.shape and expected.size
        assert np.abs(fused - expected).max() <= 1e-5 * np.abs(expected).max()
        a, b = expected.ravel(), int8.ravel()
        assert a @ b >= 0.99 * np.linalg.norm(a) * np.linalg.norm(b)


def operators(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the operators of a graph and of its branches."""
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from operators(attribute.g)


def logits_of(decoder: SessionDecoder, inputs: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """Return the logits (rows, tokens, vocabulary) of given tokens, each step with the cache."""
    logits, state = decoder.prefill(inputs, tokens.shape[1])
    steps = [decoder.step(step, state) for step in tokens[:, :-1].T]
    return torch.stack([logits, *steps], 1)


def test_encoder_and_decoder_are_quantized(exported: Callable[[str], Exported]) -> None:
    checkpoint, graph, report = exported("t5")
    inputs, settings = batch(checkpoint, 8), GenerationConfig(max_new_tokens=24)
    reference = load_session(checkpoint).decoder()
    # given tokens: after one that differs by rounding, generated ones have nothing in common
    tokens = torch.tensor(generate(reference, inputs, settings))
    expected = logits_of(reference, inputs, tokens).ravel()
    for dtype, suffix, operator, least in (
        ("int8", "quantized", "MatMulInteger", 0.99),
        ("int4", "q4", "MatMulNBits", 0.9),
    ):
        encoder, decoder = (
            list(operators(onnx.load(graph.path / f"onnx/{part}_{suffix}.onnx").graph))
            for part in ("encoder_model", "decoder_model_merged")
        )
        # self-attention, feed-forward; cross-attention and its branch of the first run, logits
        assert (encoder.count(operator), decoder.count(operator)) == (4, 4 + 3 + 1)
        assert report.quantized[dtype].agreement.measure == "argmax"
        logits = logits_of(load_session(graph, dtype=dtype).decoder(), inputs, tokens).ravel()
        assert torch.cosine_similarity(logits, expected, dim=0) >= least


def weight_types(graph: onnx.GraphProto, outer: Mapping[str, int] = {}) -> Iterator[int]:
    """Yield the types of constants of integer products, also of those in branches."""
    types = {**outer, **{tensor.name: tensor.data_type for tensor in graph.initializer}}
    for node in graph.node:
        if "MatMul" in node.op_type and types.get(node.input[1]) != onnx.TensorProto.FLOAT:
            yield from (types[name] for name in node.input[1:2] if name in types)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from weight_types(attribute.g, types)


@pytest.mark.parametrize("external", [False, True])
def test_products_of_the_first_run_are_in_its_branch(
    exported: Callable[[str], Exported], external: bool, tmp_path: Path
) -> None:
    """Other runs do not scale its inputs, and on CPUs without VNNI its products are exact, too."""
    source, path = exported("t5")[1].path / "onnx/decoder_model_merged.onnx", tmp_path / "int8.onnx"
    quantize(source, path, INT8, quantizable(source), external=external)
    outside = {name for node in onnx.load(path).graph.node for name in node.input}
    assert "encoder_hidden_states" not in outside
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    types = list(weight_types(onnx.load(tmp_path / "optimized.onnx").graph))
    assert types == [onnx.TensorProto.UINT8] * 8


def test_a_layer_that_is_left_out_is_not_in_the_branch(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    source = exported("t5")[1].path / "onnx/decoder_model_merged.onnx"
    names = quantizable(source)
    (branch,) = [name for name in names if name.endswith("cross.kv")]
    for method, operator in ((INT8, "MatMulInteger"), (INT4, "MatMulNBits")):
        quantize(source, tmp_path / "graph.onnx", method, [*{*names} - {branch}])
        assert list(operators(onnx.load(tmp_path / "graph.onnx").graph)).count(operator) == 7


@pytest.mark.long  # the cases of DeBERTa are, and it takes an export
def test_sliced_weights_are_quantized(exported: Callable[[str], Exported]) -> None:
    """Attention of DeBERTa projects its table of positions with slices of the same weights."""
    checkpoint, graph, report = exported("deberta")
    stored = onnx.load(graph.path / "onnx/model_quantized.onnx").graph
    matrices = {
        tensor.name: tuple(tensor.dims)
        for tensor in stored.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1
    }
    config: Any = checkpoint.config
    hidden, heads, buckets = config.hidden_size, config.num_heads, 2 * config.position_buckets
    scales = {name for name in matrices if name.endswith(".scale")}
    assert {matrices[name] for name in matrices.keys() - scales} == {
        (buckets, heads, hidden // heads)  # keys and queries of positions
    }
    assert list(operators(stored)).count("MatMulInteger") == 4
    assert 0 < report.quantized["int8"].agreement.drop < 0.01


@pytest.mark.long
def test_a_mix_of_layers_stays_in_float32(tmp_path: Path) -> None:
    """The weights of the mix are a vector, by which a matrix is multiplied."""
    family = get_family("elmo")
    config = family.sizes()["tiny"]
    torch.manual_seed(0)
    model = family.model(config, "none")
    checkpoint = store(tmp_path / "model", model, family, config, "none")
    export_onnx(checkpoint, tmp_path / "graph", quantization=QuantizationPlan([INT8]))
    graph = load_checkpoint(tmp_path / "graph")
    sessions = [load_session(checkpoint, "cpu"), load_session(graph, dtype="int8")]
    for expected, int8 in rows(checkpoint, sessions, [9, 4, 1]):
        a, b = expected.ravel(), int8.ravel()
        assert not np.array_equal(a, b)
        assert a @ b >= 0.99 * np.linalg.norm(a) * np.linalg.norm(b)
