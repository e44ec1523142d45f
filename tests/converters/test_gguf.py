"""GGUF files: values as the package gguf reads them, models there and back, hostile headers."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.export.targets.conftest import Small, hub_checkpoint, small
from zoo.checkpoint import load_checkpoint
from zoo.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.export.targets import find_target
from zoo.export.targets.base import ExportSettings
from zoo.hub.source import CheckpointDir
from zoo.inference import load_session
from zoo_converters.gguf import PLAIN, QUANTIZED, Gguf, GgufReader

__all__ = ["hub_checkpoint", "small"]
UNVERIFIED = ExportSettings(unverified=True, allow_tokenizer_differences=True)
TARGET = find_target("gguf")


def save(path: Path, *, alignment: int | None = None) -> dict[str, Any]:
    """Write tensors of every type that the package quantizes, and values of every type."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "test")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("words", ["a", "ä"])
    writer.add_float64("test.number", 0.5)
    writer.add_bool("test.flag", True)
    arrays: dict[str, Any] = {}
    for kind in ("F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "BF16", "TQ2_0", "MXFP4"):
        values = random.standard_normal((3, 256)).astype(np.float32)
        number = gguf.GGMLQuantizationType[kind]
        if kind in ("F32", "F16"):
            arrays[kind] = values.astype(np.float32 if kind == "F32" else np.float16)
            writer.add_tensor(kind, arrays[kind])
            continue
        packed = gguf.quants.quantize(values, number)
        arrays[kind] = gguf.quants.dequantize(packed, number)
        writer.add_tensor(kind, packed, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return arrays


@pytest.mark.parametrize("alignment", [None, 64])
def test_values_are_those_of_the_package(tmp_path: Path, alignment: int | None) -> None:
    arrays = save(tmp_path / "model.gguf", alignment=alignment)
    with Gguf().open(tmp_path, Gguf().find(["config.json", "model.gguf"])) as reader:
        assert isinstance(reader, GgufReader)
        assert reader.metadata["numbers"] == [1, 2, 3] and reader.metadata["words"] == ["a", "ä"]
        assert reader.metadata["test.number"] == 0.5 and reader.metadata["test.flag"] is True
        assert reader.tensors.keys() == arrays.keys()
        for name, expected in arrays.items():
            actual = reader.read(name)
            if name == "BF16":  # in storage dtype
                actual = (actual.astype(np.uint32) << 16).view(np.float32)
            assert actual.shape == (3, 256)
            np.testing.assert_array_equal(actual, expected)


def test_sizes_of_types_are_those_of_the_package() -> None:
    sizes = {
        kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType
    }
    assert {number: sizes[number] for number in QUANTIZED} == QUANTIZED
    assert {number: sizes[number][0] for number in PLAIN} == PLAIN


@pytest.mark.parametrize(
    "architecture",
    ["BertModel", "BertForSequenceClassification", "DistilBertModel", "GPT2LMHeadModel"],
)
def test_a_model_there_and_back_is_exact(
    architecture: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    checkpoint = small(architecture)
    TARGET.export(checkpoint, tmp_path / "export", UNVERIFIED)
    convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    back = load_checkpoint(tmp_path / "back")
    assert (back.family.name, back.head_name) == (checkpoint.family.name, checkpoint.head_name)
    with checkpoint.open_weights() as before, back.open_weights() as after:
        lost = before.tensors.keys() - after.tensors.keys()
        assert {name.partition(".")[0] for name in lost} <= {"pooler"}  # llama.cpp has none
        for name in after.tensors:
            np.testing.assert_array_equal(after.read(name), before.read(name), err_msg=name)
    assert (back.path / "tokenizer.json").read_bytes() == (
        checkpoint.path / "tokenizer.json"
    ).read_bytes()


def test_positions_that_no_text_has_are_left_out(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    checkpoint = small("RobertaModel")
    TARGET.export(checkpoint, tmp_path / "export", UNVERIFIED)
    convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    inputs = {"input_ids": np.array([[0, 5, 9, 2]])}
    ours, theirs = (
        load_session(load_checkpoint(path)).run(inputs)["last_hidden_state"]
        for path in (checkpoint.path, tmp_path / "back")
    )
    np.testing.assert_array_equal(theirs, ours)


def test_quantized_weights_are_read_in_float32(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    checkpoint = small("BertModel", hidden_size=64, intermediate_size=96)
    settings = ExportSettings(precision="q8_0", unverified=True)
    TARGET.export(checkpoint, tmp_path / "export", settings)
    convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    name, kind = "layers.1.ffn.up.weight", gguf.GGMLQuantizationType.Q8_0
    with (
        checkpoint.open_weights() as before,
        load_checkpoint(tmp_path / "back").open_weights() as after,
    ):
        exact = np.asarray(before.read(name), np.float32)
        expected = gguf.quants.dequantize(gguf.quants.quantize(exact, kind), kind)
        np.testing.assert_array_equal(after.read(name), expected)


@pytest.mark.parametrize("name", ["onnx", "openvino", "ctranslate2"])
def test_other_exports_are_recognised(name: str, small: Small, tmp_path: Path) -> None:
    find_target(name).export(small("BertModel"), tmp_path / "export", ExportSettings())
    with pytest.raises(Exception, match="without the weights of its model") as caught:
        convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    assert getattr(caught.value, "exit_code", 1) == 4


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "model.gguf")
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with GgufReader(tmp_path / "model.gguf") as reader:
        reader.read("F32")
        with pytest.raises(UsageError, match="pip install gguf"):
            reader.read("Q4_0")


def header(tensors: int = 0, keys: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def padded(content: bytes, data: int) -> bytes:
    return content + bytes(-len(content) % 32 + data)


F32, Q8 = 0, 8
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends in its header"),
    "another file": (b"PK\3\4" + bytes(40), "does not begin"),
    "version": (header(version=1), "version 1"),
    "many tensors": (header(tensors=1 << 62), "number of tensors"),
    "many keys": (header(keys=1 << 62), "number of keys"),
    "long string": (header(keys=1, rest=text(b"a", 1 << 63)), "ends in its header"),
    "long array": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 4, 1 << 62)),
        "ends in its header",
    ),
    "many strings": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 40)),
        "ends in its header",
    ),
    "nested arrays": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 9, 1) + bytes(64)),
        "value of the type 9",
    ),
    "unknown value": (header(keys=1, rest=text(b"a") + struct.pack("<I", 77)), "of the type 77"),
    "bytes in a name": (header(keys=1, rest=text(b"\xff") + bytes(9)), "not UTF-8"),
    "unknown type": (header(1, 0, tensor(b"a", (4,), 99, 0)), "of the type 99"),
    "axes": (header(1, 0, tensor(b"a", (1,) * 5, F32, 0)), "5 axes"),
    "large shape": (header(1, 0, tensor(b"a", (1 << 40, 1 << 40), F32, 0)), "has the shape"),
    "no elements": (header(1, 0, tensor(b"a", (0, 4), F32, 0)), "has the shape"),
    "half a block": (padded(header(1, 0, tensor(b"a", (33,), Q8, 0)), 64), "rows of 33"),
    "behind the file": (padded(header(1, 0, tensor(b"a", (8,), F32, 64)), 64), "ends behind"),
    "far behind": (
        padded(header(1, 0, tensor(b"a", (8,), F32, (1 << 64) - 32)), 64),
        "ends behind",
    ),
    "overlap": (
        padded(header(2, 0, tensor(b"a", (8,), F32, 0) + tensor(b"b", (8,), F32, 16)), 64),
        "overlaps another",
    ),
    "twice": (
        padded(header(2, 0, tensor(b"a", (8,), F32, 0) + tensor(b"a", (8,), F32, 32)), 64),
        "listed twice",
    ),
    "alignment": (
        header(0, 1, text(b"general.alignment") + struct.pack("<II", 4, 0)),
        "alignment is 0",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_are_refused(case: str, tmp_path: Path) -> None:
    content, reason = HOSTILE[case]
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(VerificationError, match=reason) as caught:
        Gguf().open(tmp_path, ["model.gguf"])
    assert "\n" not in str(caught.value)
