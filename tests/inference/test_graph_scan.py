"""Untrusted ONNX files: refused before the runtime loads them, or by it, with one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.inference.making import draw_batch, write_manifest
from tests.processes import run_limited
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.inference import load_session
from zoo.inference.exported import check_files
from zoo.inference.graph_scan import scan_graph


@pytest.fixture(scope="module")
def split(small_export: Path) -> Checkpoint:
    """An export with external weights."""
    return load_checkpoint(small_export / "export")


@pytest.fixture
def copy(split: Checkpoint, tmp_path: Path) -> Path:
    """A copy of the export, to be modified."""
    return shutil.copytree(split.path, tmp_path / "graph")


def accept(path: Path) -> Checkpoint:
    """Update the digests in the manifest, as an attacker would."""
    before = json.loads((path / "zoo.json").read_text())
    write_manifest(path)
    after = json.loads((path / "zoo.json").read_text())
    rewrite(path, {**before, "files": after["files"]})
    return load_checkpoint(path)


def rewrite(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest without a digest of itself."""
    (path / "zoo.json").write_text(json.dumps({**manifest, "digest": ""}))


def small(*nodes: onnx.NodeProto, **more: Any) -> onnx.ModelProto:
    """Return a model of the given nodes, with one input and one output."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    graph = helper.make_graph(list(nodes), "g", ends[:1], ends[1:], **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def endless() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [None]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [None]),
        ],
    )
    count = numpy_helper.from_array(np.array(1 << 62), "n")
    true = numpy_helper.from_array(np.array(True), "t")
    loop = helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body)
    return small(loop, initializer=[count, true])


def scans_in_a_scan() -> onnx.ModelProto:
    """Return two nested loops over the elements of an input: quadratic in its length."""

    def scan(inner: onnx.NodeProto) -> onnx.NodeProto:
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
        body = helper.make_graph([inner], "body", values[:1], values[1:])
        return helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)

    return small(scan(scan(helper.make_node("Identity", ["x"], ["y"]))))


def foreign() -> onnx.ModelProto:
    return small(helper.make_node("Mine", ["x"], ["y"], domain="com.mine"))


def unknown_of_the_runtime() -> onnx.ModelProto:
    return small(helper.make_node("Mine", ["x"], ["y"], domain="com.microsoft"))


def with_function() -> onnx.ModelProto:
    model = small(helper.make_node("Identity", ["x"], ["y"]))
    nodes = [helper.make_node("Identity", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("", "F", ["a"], ["b"], nodes, opsets))
    return model


def with_expression() -> onnx.ModelProto:
    return small(helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(a+)+$"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (endless, "loops, or branches in branches"),
        (scans_in_a_scan, "loops, or branches in branches"),
        (foreign, "operators of the domain 'com.mine'"),
        (unknown_of_the_runtime, "operators of the domain 'com.microsoft'"),
        (with_function, "functions"),
        (with_expression, "RegexFullMatch"),
    ],
)
def test_what_no_graph_of_ours_has(
    copy: Path, make: Callable[[], onnx.ModelProto], message: str
) -> None:
    (copy / "onnx/model.onnx").write_bytes(make().SerializeToString())
    with pytest.raises(VerificationError, match=message):
        load_session(accept(copy))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff" * 99, b"\x3a\xff\xff\xff\xff\x7f", b"\x08"]
)
def test_what_is_no_graph(copy: Path, content: bytes) -> None:
    (copy / "onnx/model.onnx").write_bytes(content)
    with pytest.raises(VerificationError, match=r"model\.onnx: not an ONNX graph") as caught:
        load_session(accept(copy))
    assert "\n" not in str(caught.value)


def relocated(path: Path, location: str) -> None:
    """Change the external file that the first external tensor refers to."""
    model = onnx.load(path, load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.external_data)
    entry = next(e for e in tensor.external_data if e.key == "location")
    entry.value = location
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("../secret", "outside of its directory"),
        ("/etc/passwd", "outside of its directory"),
        ("weights.bin", "weights.bin is not the file that .*zoo.json describes"),
        ("", "outside of its directory"),
    ],
)
def test_external_data_under_any_name(copy: Path, location: str, message: str) -> None:
    relocated(copy / "onnx/model.onnx", location)
    checkpoint = accept(copy)
    (copy / "onnx/weights.bin").write_bytes(
        (copy / "onnx/model.onnx_data").read_bytes()
    )  # unlisted
    with pytest.raises(VerificationError, match=message):
        load_session(checkpoint)


def test_external_data_of_another_name_is_compared(copy: Path) -> None:
    (copy / "onnx/weights.bin").write_bytes((copy / "onnx/model.onnx_data").read_bytes())
    relocated(copy / "onnx/model.onnx", "weights.bin")
    checkpoint = accept(copy)
    assert check_files(checkpoint) == 3
    content = bytearray((copy / "onnx/weights.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "onnx/weights.bin").write_bytes(content)
    with pytest.raises(VerificationError, match=r"weights\.bin is not the file"):
        load_session(checkpoint)


@pytest.mark.parametrize(
    "export",
    [
        {"graphs": 7},
        {"graphs": {}},
        {"graphs": {"onnx/model.onnx": {}, "onnx/more.onnx": {}}},
        {"validated": "yes"},
        {"dtype": 3},
        {"dtype": "float31"},
        {"quantized": {"int3": {"graphs": {}}}},
        {"cache": None},
        {"graphs": {"../model.onnx": {}}},
        {"graphs": {"other.onnx": {}}},
    ],
)
def test_a_manifest_with_other_values(copy: Path, export: dict[str, Any]) -> None:
    manifest = json.loads((copy / "zoo.json").read_text())
    manifest["export"] |= export
    rewrite(copy, manifest)
    with pytest.raises(VerificationError, match=r"zoo\.json"):
        load_session(load_checkpoint(copy))


def test_the_graph_of_another_model(copy: Path) -> None:
    model = small(helper.make_node("Identity", ["x"], ["y"]))
    (copy / "onnx/model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(VerificationError, match="takes x and returns y, where the model takes"):
        load_session(accept(copy))


def test_sound_graphs_pass(split: Checkpoint) -> None:
    assert scan_graph(split.path / "onnx/model.onnx") == {"model.onnx_data"}
    outputs = load_session(split).run(draw_batch([7, 3]))
    assert [name for name, value in outputs.items() if not np.isfinite(value).all()] == []


def test_truncated_anywhere_is_one_line(copy: Path) -> None:
    content = (copy / "onnx/model.onnx").read_bytes()
    for at in np.random.default_rng(0).integers(0, len(content), 20):
        (copy / "onnx/model.onnx").write_bytes(content[:at])
        try:
            load_session(accept(copy))
        except (VerificationError, UsageError) as error:
            assert "\n" not in str(error)


@pytest.mark.long
def test_huge_constants_end_in_one_line(copy: Path) -> None:
    """Constant folding would allocate 400 GB when the runtime loads the graph."""
    size = numpy_helper.from_array(np.array([100_000_000_000], np.int64), "s")
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["r"], keepdims=0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    (copy / "onnx/model.onnx").write_bytes(small(*nodes, initializer=[size]).SerializeToString())
    accept(copy)
    done = run_limited(["zoo", "bench", copy, "--backend", "onnx", "--iterations", "1"])
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
    assert done.peak_bytes < 1 << 30
