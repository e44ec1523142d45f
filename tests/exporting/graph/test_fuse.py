"""Fused layers are counted, so that a rule that no longer matches is noticed."""

from collections import Counter
from pathlib import Path

import onnx_ir as ir
import onnxruntime
import pytest

from tests.exporter import trace_once
from tests.exporting.graph.making import LAYERS, parts, traced
from tests.exporting.making import export_onnx
from tests.inference.making import make_checkpoint
from zoo.checkpoint import load_checkpoint
from zoo.exporting.graph.fuse import fuse, fused_operators, order_gelu
from zoo.exporting.graph.opsets import DEFAULT_OPSET
from zoo.inference.exported import check_files

GELU = {"Gelu": LAYERS, "MultiHeadAttention": LAYERS}
ENCODERS = ("electra", "distilbert", "deberta", "roberta", "albert", "modernbert")
PAIRS = ["tokens", "tokens"]
LONG = pytest.mark.long  # repeats the rules of the first case on other blocks


def test_an_encoder_is_fused_and_compared(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    report = export_onnx(checkpoint, tmp_path / "export", optimize=True)
    (graph,) = report.graphs.values()
    assert graph.fused == {"Gelu": 1, "MultiHeadAttention": 1}
    assert report.max_rel <= 1e-5 and len(report.checks) >= 3
    assert check_files(load_checkpoint(tmp_path / "export")) == 1
    assert "1 MultiHeadAttention" in "\n".join(report.lines())


@pytest.mark.by_default("second")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(pytest.param(name, GELU, marks=LONG) for name in ENCODERS),
        ("second", {"FastGelu": 2, "MultiHeadAttention": 2}),
        # an encoder of one layer, a decoder of two
        ("plain", {"MultiHeadAttention": 5, "SkipSimplifiedLayerNormalization": 8}),
    ],
)
def test_fused_operators_of_families(name: str, expected: dict[str, int]) -> None:
    total: Counter[str] = Counter()
    for model in traced(name):
        total.update(fused_operators(fuse(model)))
    assert dict(total) == expected


# The outputs do not change with it, and it is the trace of one more family.
@pytest.mark.long
def test_layers_share_a_mask_of_local_attention() -> None:
    """It has no dimension of heads, and distances are not stored as numbers."""
    (model,) = traced("modernbert")
    made = ((node.op_type, value) for node in model.graph for value in node.outputs)
    shaped = [(operator, value, [*map(str, value.shape or ())]) for operator, value in made]
    pairs = [(operator, value, axes) for operator, value, axes in shaped if axes[-2:] == PAIRS]
    masks = [axes for operator, _, axes in pairs if operator == "Where"]
    assert masks == [["batch", "1", *PAIRS]]
    assert [v for _, v, _ in pairs if v.dtype not in (ir.DataType.BOOL, ir.DataType.FLOAT)] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("activation", "operator"),
    [("gelu", "BiasGelu"), pytest.param("gelu_new", "FastGelu", marks=LONG)],
)
def test_onnxruntime_fuses_activations_of_plain_graphs(
    activation: str, operator: str, tmp_path: Path
) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1, activation=activation)
    (part,) = parts(checkpoint)
    model = trace_once(part.module, part.example, part.spec, DEFAULT_OPSET).model
    counts = []
    for number in range(2):
        ir.save(model, tmp_path / "graph.onnx")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / f"optimized-{number}.onnx")
        onnxruntime.InferenceSession(tmp_path / "graph.onnx", options, ["CPUExecutionProvider"])
        counts.append(fused_operators(ir.load(options.optimized_model_filepath)).get(operator, 0))
        order_gelu(model)
    assert counts == [0, 1]
