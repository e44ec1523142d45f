"""NaN in weights is an error when a model is opened, whatever its kernels make of it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints import Make
from tests.inference.making import write_manifest
from zoo.checkpoint import WEIGHTS, load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import NonFiniteError
from zoo.hub.source import CheckpointDir
from zoo.inference.graph_scan import scan_graph
from zoo.inference.nan_weights import require_no_nan
from zoo.inference.torch_session import TorchSession


@pytest.mark.parametrize("dtype", [None, "bfloat16", "int8"])
def test_a_torch_session_is_refused(
    dtype: str | None, hub_checkpoint: Make, tmp_path: Path
) -> None:
    convert(CheckpointDir(hub_checkpoint("BertModel"), "source"), tmp_path / "ours")
    path = tmp_path / "ours" / WEIGHTS
    weights = load_file(path)
    name = next(name for name in weights if name.startswith("layers.") and weights[name].ndim == 2)
    weights[name][0, 0] = torch.nan
    save_file(weights, path)
    write_manifest(tmp_path / "ours")
    with pytest.raises(NonFiniteError, match=f"the weight {name} holds NaN"):
        TorchSession(load_checkpoint(tmp_path / "ours"), dtype=dtype)


def test_large_and_infinite_numbers_are_not_nan() -> None:
    model = torch.nn.Linear(2, 2, bias=False)
    for values in ([3e38, 3e38, 1.0, 1.0], [torch.inf, -torch.inf, 1.0, 1.0]):
        model.weight = torch.nn.Parameter(torch.tensor(values).reshape(2, 2))
        require_no_nan(model, "a model")
    model.weight = torch.nn.Parameter(torch.tensor([[torch.inf, torch.nan], [1.0, 1.0]]))
    with pytest.raises(NonFiniteError):
        require_no_nan(model, "a model")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_a_graph_is_refused(dtype: Any, tmp_path: Path) -> None:
    def write(*values: float) -> Path:
        weight = onnx.numpy_helper.from_array(np.array(values, dtype), "a.weight")
        node = onnx.helper.make_node("ReduceMax", ["a.weight"], ["y"])
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        output = onnx.helper.make_tensor_value_info("y", kind, [1])
        graph = onnx.helper.make_graph([node], "g", [], [output], [weight])
        onnx.save(onnx.helper.make_model(graph), tmp_path / "a.onnx")
        return tmp_path / "a.onnx"

    assert scan_graph(write(1.0, np.inf, -np.inf)) == set()
    with pytest.raises(NonFiniteError, match=r"a\.onnx: the weight a\.weight holds NaN"):
        scan_graph(write(1.0, np.nan))
