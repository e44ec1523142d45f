"""Operator set versions of ONNX graphs, and the releases of ONNX Runtime that run them."""

from typing import NamedTuple

from zoo.errors import UsageError


class Versions(NamedTuple):
    """IR version and ONNX Runtime release for an operator set."""

    ir: int  # oldest IR version that supports it
    onnxruntime: str  # first release of ONNX Runtime that runs it


# Tested: the graph of an encoder runs in that release and not in the one before it (1.15 is the
# oldest release tested). Opset 23 has an attention operator; its kernel in onnxruntime 1.31
# rejects a mask that is broadcast over queries.
OPSETS = {
    18: Versions(8, "1.15"),
    19: Versions(9, "1.16"),
    20: Versions(9, "1.17"),
    21: Versions(10, "1.18"),
    22: Versions(10, "1.21"),
}
# Dtypes of graphs that older releases do not run: they have no float16 layer norm on CPUs, and no
# products of 4-bit weights with the inputs that are written here. Tested likewise.
SINCE = {"float16": "1.17", "int4": "1.17"}
# The opset of the exporter's own operators, and the fastest in onnxruntime 1.31.
DEFAULT_OPSET = 18


def check_opset(opset: int | None) -> int:
    """Return the operator set version to export."""
    if opset is None:
        return DEFAULT_OPSET
    if opset not in OPSETS:
        raise UsageError(f"opset {opset} is not supported", f"give {min(OPSETS)} to {max(OPSETS)}")
    return opset


def latest_release(release: str, dtype: str) -> str:
    """Return the later one of a release and the first that runs graphs in a dtype."""
    releases = (release, SINCE.get(dtype, release))
    return max(releases, key=lambda version: [int(part) for part in version.split(".")])
