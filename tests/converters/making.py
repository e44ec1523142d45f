"""Files of weights that the tests of several formats read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from zoo.errors import VerificationError, ZooError
from zoo.io.tensors.formats import Format, TensorReader
from zoo_converters import zoo_formats


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


SHAPES = ((3, 4), (5,), (1, 2, 3), (), (7,))


def written(folder: Path, cuts: tuple[int, ...] = (4, 13, 13), dtype: str = "<f4") -> list[Any]:
    """Write arrays of ``SHAPES`` as one flat array, cut at given positions."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(dtype) for shape in SHAPES]
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    for number, piece in enumerate(np.split(flat, cuts)):
        np.save(folder / f"params_{number}.npy", piece)
    (folder / "params_shapes.json").write_text(json.dumps([array.shape for array in arrays]))
    return arrays


SAFE, BIN = zoo_formats()[:2]
INDEX = "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
PLACES = {"a": ONE, "b": ONE, "c": TWO}
Save = Callable[[Mapping[str, float], Path], None]


def save_safetensors(tensors: Mapping[str, float], path: Path) -> None:
    save_file({name: np.full(3, value, np.float32) for name, value in tensors.items()}, path)


class Sharded:
    """A checkpoint in two shards, in one of the formats."""

    def __init__(self, folder: Path, form: Format, save: Save) -> None:
        self.folder, self.form, self.save = folder, form, save
        self.stem, self.suffix = ("pytorch_model", "bin") if form is BIN else ("model", form.name)
        self.write(PLACES)

    def name(self, file: str) -> str:
        return file.replace("model", self.stem, 1).replace("safetensors", self.suffix, 1)

    def path(self, file: str) -> Path:
        return self.folder / self.name(file)

    def write(self, weight_map: Mapping[str, str], *, values: float = 1.0) -> None:
        for file in {*weight_map.values()}:
            held = [name for name, place in weight_map.items() if place == file]
            self.save({name: values + ord(name) for name in held}, self.path(file))
        self.index(weight_map={name: self.name(file) for name, file in weight_map.items()})

    def index(self, **content: object) -> None:
        self.path(INDEX).write_text(json.dumps({"metadata": {}, **content}))

    def open(self) -> TensorReader:
        return self.form.open(self.folder, self.form.find([p.name for p in self.folder.iterdir()]))

    def refused(self, *says: str, error: type[ZooError] = VerificationError) -> None:
        with pytest.raises(error) as caught:
            self.open()
        line = str(caught.value)
        assert "\n" not in line
        for text in says:
            assert self.name(text) in line
