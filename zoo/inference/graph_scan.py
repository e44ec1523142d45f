"""Scan of an ONNX file before ONNX Runtime loads it: operators, sizes and external data."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import NonFiniteError, VerificationError
from zoo.inference.nan_weights import holds_nan
from zoo.io.files import read_regular
from zoo.io.limits import MAX_ONNX_ATTRIBUTES, MAX_ONNX_FILE_BYTES, MAX_ONNX_NODES
from zoo.io.protobuf import Value, as_bytes, fields
from zoo.io.sizes import check_size
from zoo.io.untrusted import parsing

# field numbers in onnx.proto
_MODEL_GRAPH = 7
_MODEL_OPSET = 8
_MODEL_TRAINING = 20
_MODEL_FUNCTIONS = 25
_OPSET_DOMAIN = 1
_GRAPH_NODE = 1
_GRAPH_INITIALIZER = 5
_GRAPH_SPARSE = 15
_NODE_OPERATOR = 4
_NODE_ATTRIBUTE = 5
_NODE_DOMAIN = 7
_ATTRIBUTE_TENSOR = 5
_ATTRIBUTE_TENSORS = 10
_ATTRIBUTE_SPARSE = (22, 23)
_ATTRIBUTE_GRAPH = 6
_ATTRIBUTE_GRAPHS = 11
_TENSOR_TYPE = 2
_TENSOR_NAME = 8
_TENSOR_RAW = 9
_TENSOR_EXTERNAL = 13
_ENTRY_KEY = 1
_ENTRY_VALUE = 2

_FLOATS: dict[int, np.dtype[np.floating[Any]]] = {
    1: np.dtype("<f4"),
    10: np.dtype("<f2"),
    11: np.dtype("<f8"),
}  # types with NaN
DOMAINS = ("", "ai.onnx")
# Operators of ONNX Runtime itself that zoo writes, for int4 and for fused layers.
CONTRIB = "com.microsoft"
CONTRIB_OPERATORS = {
    "FastGelu",
    "Gelu",
    "MatMulNBits",
    "MultiHeadAttention",
    "SkipSimplifiedLayerNormalization",
}
# Matching a regular expression may take exponential time.
REFUSED = {"RegexFullMatch", "StringSplit"}


def scan_graph(path: Path) -> set[str]:
    """Check an ONNX file and return the locations of its external data.

    A graph that zoo exports is a sequence of standard operators and of a few of ONNX Runtime's
    own. It has no functions, and no loops except ``Scan``, which runs once for each element of an
    input. It may have branches, ``If``; neither has a loop or branch inside. Inference therefore
    terminates, and executes no code but the runtime's. A file with anything else is refused. The
    protobuf messages are read without decoding tensors, in any order of their fields.
    """
    content = memoryview(read_regular(path, "graph", MAX_ONNX_FILE_BYTES))
    scan = _Scan(path)
    with parsing(path, "an ONNX graph"):
        scan.model(content)
    if not scan.graphs:
        raise VerificationError(f"{path}: not an ONNX graph that can be read: it holds no graph")
    return scan.locations


class _Scan:
    """Visitor of the messages of one file, from the model to its tensors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.graphs = self.nodes = self.attributes = 0
        self._in_body = False
        self.locations: set[str] = set()

    def model(self, content: memoryview) -> None:
        for number, value in _fields(content):
            if number == _MODEL_GRAPH:
                self.graph(_bytes(value))
            elif number == _MODEL_OPSET:
                for inner, domain in _fields(_bytes(value)):
                    if inner == _OPSET_DOMAIN and _text(domain) != CONTRIB:
                        self._require_standard(domain)
            elif number in (_MODEL_TRAINING, _MODEL_FUNCTIONS):
                self._refuse("functions or training steps")

    def graph(self, content: memoryview) -> None:
        self.graphs += 1
        parts: dict[int, Callable[[memoryview], None]] = {
            _GRAPH_NODE: self.node,
            _GRAPH_INITIALIZER: self.tensor,
        }
        for number, value in _fields(content):
            if number in parts:
                parts[number](_bytes(value))
            elif number == _GRAPH_SPARSE:
                self._refuse("sparse tensors")

    def node(self, content: memoryview) -> None:
        self.nodes += 1
        check_size(self.path, "number of nodes", self.nodes, MAX_ONNX_NODES)
        operators = {_text(value) for number, value in _fields(content) if number == _NODE_OPERATOR}
        if refused := operators & REFUSED:
            self._refuse(f"the operator {', '.join(sorted(refused))}")
        for number, value in _fields(content):
            if number == _NODE_DOMAIN:
                if _text(value) != CONTRIB or not operators <= CONTRIB_OPERATORS:
                    self._require_standard(value)
            elif number == _NODE_ATTRIBUTE:
                self.attribute(_bytes(value), operators)

    def attribute(self, content: memoryview, operators: set[str]) -> None:
        self.attributes += 1
        check_size(self.path, "number of attributes", self.attributes, MAX_ONNX_ATTRIBUTES)
        for number, value in _fields(content):
            if number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                # the body of ``Scan``, or a branch of ``If``
                if operators not in ({"Scan"}, {"If"}) or self._in_body:
                    self._refuse("loops, or branches in branches")
                self._in_body = True
                self.graph(_bytes(value))
                self._in_body = False
            elif number in _ATTRIBUTE_SPARSE:
                self._refuse("sparse tensors")
            elif number in (_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS):
                self.tensor(_bytes(value))

    def tensor(self, content: memoryview) -> None:
        kind = 0
        name = ""
        raw = memoryview(b"")
        for number, value in _fields(content):
            if number == _TENSOR_TYPE and isinstance(value, int):
                kind = value
            elif number == _TENSOR_NAME:
                name = _text(value)
            elif number == _TENSOR_RAW:
                raw = _bytes(value)
            if number != _TENSOR_EXTERNAL:
                continue
            entry = {number: _text(text) for number, text in _fields(_bytes(value))}
            if entry.get(_ENTRY_KEY) == "location":
                self.locations.add(entry.get(_ENTRY_VALUE, ""))
        dtype = _FLOATS.get(kind)
        is_complete = dtype is not None and len(raw) % dtype.itemsize == 0
        if is_complete and holds_nan(np.frombuffer(raw, dtype)):
            raise NonFiniteError(f"{self.path}: the weight {name} holds NaN")

    def _require_standard(self, domain: "Value | memoryview") -> None:
        if (name := _text(domain)) not in DOMAINS:
            self._refuse(f"operators of the domain {name!r}")

    def _refuse(self, what: str) -> None:
        raise VerificationError(
            f"{self.path} has {what}, which no graph has that zoo exports", "export it again"
        )


def _fields(content: memoryview) -> "Iterator[tuple[int, Value]]":
    # slices of a memoryview copy nothing; otherwise it behaves like bytes
    return fields(content)  # type: ignore[arg-type]


def _bytes(value: "Value | memoryview") -> memoryview:
    return memoryview(as_bytes(value))  # type: ignore[arg-type]


def _text(value: "Value | memoryview") -> str:
    return bytes(_bytes(value)).decode("utf-8", "backslashreplace")
