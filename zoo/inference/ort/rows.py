"""Selection of rows of a batch, on the device that holds it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, OrtValue

from zoo.inference.ort.runtime import create_session, ort_value, run_values

# The versions of ONNX 1.12, so that earlier releases of ONNX Runtime read the graph.
OPSET = 17
IR_VERSION = 8


class RowSelector:
    """Selects rows of tensors by a graph in ONNX Runtime, so that none is copied to the host."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._sessions: dict[int, InferenceSession] = {}  # by element type

    def select(
        self, values: Mapping[str, OrtValue], rows: NDArray[np.int64]
    ) -> dict[str, OrtValue]:
        """Return rows of the first axis of each tensor."""
        indices = ort_value(rows)
        selected = {}
        for name, value in values.items():
            element_type = value.element_type()
            if element_type not in self._sessions:
                self._sessions[element_type] = create_session(
                    gather_graph(element_type), self._device
                )
            inputs = {"values": value, "rows": indices}
            outputs = run_values(self._sessions[element_type], inputs, ["selected"], self._device)
            selected[name] = outputs["selected"]
        return selected


def gather_graph(element_type: int) -> bytes:
    """Return a graph that selects rows of a tensor with any number of axes."""
    from onnx import TensorProto, helper  # not needed without beams, and slow to import

    graph = helper.make_graph(
        [helper.make_node("Gather", ["values", "rows"], ["selected"], axis=0)],
        "rows",
        [
            helper.make_tensor_value_info("values", element_type, None),
            helper.make_tensor_value_info("rows", TensorProto.INT64, [None]),
        ],
        [helper.make_tensor_value_info("selected", element_type, None)],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString())
