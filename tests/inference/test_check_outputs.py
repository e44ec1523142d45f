from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from onnx import TensorProto, helper

from zoo.errors import VerificationError
from zoo.inference.check_outputs import check_cache

FLOAT = ("tensor(float)",)
Axes = Sequence[str | int]


def decoder(logits: Axes, state: Axes) -> Any:
    """Return a session of a graph with logits and one cached state of the given shapes."""

    def value(name: str, shape: Axes, kind: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    names = ("past_key_values.0.key", "present.0.key")
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["scores"], ["logits"]),
            helper.make_node("Identity", [names[0]], [names[1]]),
        ],
        "decoder",
        [
            value("scores", logits),
            value(names[0], state),
            value("num_logits_to_keep", [], TensorProto.INT64),
        ],
        [value("logits", logits), value(names[1], state)],
        [helper.make_tensor("num_logits_to_keep", TensorProto.INT64, [], [0])],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString())


def test_logits_and_states_have_their_axes() -> None:
    logits: Axes = ["batch", "tokens", 9]
    state: Axes = ["batch", 2, "tokens", 4]
    check_cache(Path("model.onnx"), decoder(logits, state), FLOAT)
    with pytest.raises(VerificationError, match=r"logits is a tensor\(float\) with 2 axes"):
        check_cache(Path("model.onnx"), decoder(["batch", 9], state), FLOAT)
    with pytest.raises(VerificationError, match=r"key is a tensor\(float\) with 3 axes"):
        check_cache(Path("model.onnx"), decoder(logits, ["batch", 2, 4]), FLOAT)
