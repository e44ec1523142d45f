"""Saturation of ONNX Runtime's integer products of uint8 by int8, and the option that avoids it."""

import functools

import numpy as np
import onnxruntime

EXACT_PRODUCTS = "session.x64quantprecision"
# element types in onnx.proto
UINT8 = 2
INT8 = 3
INT32 = 6
LARGEST_UINT8 = 255
LARGEST_INT8 = 127
INNER = 64


def exact_products(options: onnxruntime.SessionOptions) -> None:
    """Let sessions with these options compute integer products exactly on this CPU.

    x86 CPUs with AVX2 or AVX-512 but without VNNI add two products of uint8 by int8 in int16
    (``vpmaddubsw``): 2 * 255 * 127 does not fit, and the largest value takes its place. By the
    option ``session.x64quantprecision`` (``kOrtSessionOptionsAvx2PrecisionMode`` in
    ``onnxruntime_session_options_config_keys.h``), constant weights become uint8 when a graph is
    loaded, whose products are added in int32 without a loss. ONNX Runtime obeys it on CPUs with
    VNNI, too, whose products are exact and faster without it.
    """
    if saturates():
        options.add_session_config_entry(EXACT_PRODUCTS, "1")


@functools.cache
def saturates() -> bool:
    """Return whether products of uint8 by int8 saturate on this CPU by default; it is tried."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # y = MatMulInteger(x, w), encoded here because ``import onnx`` takes 0.2 s
    node = _field(1, b"x") + _field(1, b"w") + _field(2, b"y") + _field(4, b"MatMulInteger")
    values = _field(11, _value(b"x", UINT8)) + _field(11, _value(b"w", INT8))
    graph = _field(1, node) + _field(2, b"product") + values + _field(12, _value(b"y", INT32))
    # 8 and 18
    ir_version = b"\x08\x08"
    opset = b"\x10\x12"
    session = onnxruntime.InferenceSession(
        ir_version + _field(7, graph) + _field(8, opset),
        options,
        providers=["CPUExecutionProvider"],
    )
    inputs = {
        "x": np.full((4, INNER), LARGEST_UINT8, np.uint8),
        "w": np.full((INNER, 16), LARGEST_INT8, np.int8),
    }
    (product,) = session.run(["y"], inputs)
    return bool((product != LARGEST_UINT8 * LARGEST_INT8 * INNER).any())


def _value(name: bytes, element_type: int) -> bytes:
    return _field(1, name) + _field(2, _field(1, bytes([8, element_type])))


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a protobuf message that is shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content
