"""Weights in all file formats, converted and compared elementwise with another library.

A conversion permutes elements and changes none. The permutation is determined with a source of
numbered elements, and then applied to the values of a mutated source, read by another library.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np

from tests.fuzz.gguf_headers import header_mutation
from tests.fuzz.octets import BYTES, Mutate
from tests.fuzz.pickles import archive_mutation, stream_mutation
from tests.fuzz.reader import Reader
from tests.fuzz.readers.examples import bert_files, golden, hub_model, write_files, zoo
from zoo.conformance.golden import Golden

SOURCE = "source-model"
RESULT = "converted-model"
NUMBERS = "numbers.npz"
GGUF_FILE = "model.gguf"
Arrays = Mapping[str, Any]


class Weights(Reader):
    """Model in the Hub's layout, or in the layout of its authors' release."""

    case: tuple[str, str] = ("bert", "none")
    extra: Sequence[str] = ()  # options of the conversion
    dtypes: Sequence[str] = ("float32",)  # of the result

    def make(self, folder: Path) -> None:
        example = golden(*self.case)
        numbered = _numbered(example.weights)
        for path, weights in ((folder / "numbered", numbered), (folder / "scene", example.weights)):
            (path / SOURCE).mkdir(parents=True)
            (path / SOURCE / "config.json").write_text(json.dumps(example.hub_config, indent=1))
            self.write(path / SOURCE, weights, example)
        zoo(folder / "numbered", self.commands(Random(0))[0])
        shape = {name: array.size for name, array in example.weights.items()}
        (folder / "shapes.json").write_text(json.dumps(shape))
        result = stored(folder / "numbered" / RESULT)
        np.savez(folder / NUMBERS, **{k: v.view(np.int32) for k, v in result.items()})

    def commands(self, random: Random) -> list[list[str]]:
        return [["convert", SOURCE, "-o", RESULT, *self.extra]]

    def check(self, folder: Path) -> str:
        expected = self._expected(folder)
        with np.load(folder.parent / NUMBERS) as numbers:
            for name, array in stored(folder / RESULT).items():
                if name not in numbers:
                    return f"{name} is new"
                if array.dtype not in self.dtypes:
                    return f"{name} is {array.dtype}"
                wanted = expected[numbers[name].reshape(-1)]
                if array.astype(np.float32).tobytes() != wanted.tobytes():
                    return f"{name} differs from what another library reads"
        return ""

    def _expected(self, folder: Path) -> Any:
        """Return the bits of all elements, ordered by their numbers."""
        view = self.view(folder / SOURCE)
        parts = []
        for name, size in json.loads((folder.parent / "shapes.json").read_text()).items():
            array = view.get(name)
            usable = array is not None and array.size == size and array.dtype == np.float32
            bits = np.ascontiguousarray(array).view(np.int32) if usable else np.full(size, -1)
            parts.append(bits.reshape(-1).astype(np.int32))
        return np.concatenate(parts)

    @abstractmethod
    def write(self, folder: Path, weights: Arrays, example: Golden) -> None:
        """Write the weights and other files of the format."""

    @abstractmethod
    def view(self, folder: Path) -> Arrays:
        """Return the tensors, read by another library."""


class Safetensors(Weights):
    name = "safetensors"
    weight = 2
    targets = (f"{SOURCE}/model.safetensors",)

    def write(self, folder: Path, weights: Arrays, example: Golden) -> None:
        from safetensors.numpy import save_file

        save_file(dict(weights), folder / "model.safetensors", {"format": "pt"})

    def view(self, folder: Path) -> Arrays:
        return stored(folder)


class Sharded(Weights):
    """Checkpoint of an index and two shards."""

    name = "index"
    targets = (*[f"{SOURCE}/*.index.json"] * 3, f"{SOURCE}/*.safetensors")

    def write(self, folder: Path, weights: Arrays, example: Golden) -> None:
        from safetensors.numpy import save_file

        names = sorted(weights)
        half = len(names) // 2
        weight_map: dict[str, str] = {}
        for number, part in enumerate((names[:half], names[half:]), 1):
            file = f"model-{number:05d}-of-00002.safetensors"
            save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
            weight_map |= dict.fromkeys(part, file)
        total = sum(array.nbytes for array in weights.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))

    def view(self, folder: Path) -> Arrays:
        from safetensors.numpy import load_file

        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        view: dict[str, Any] = {}
        files: dict[str, Any] = {}
        for name, file in index["weight_map"].items():
            if file not in files:
                files[file] = load_file(folder / file)
            view[name] = files[file][name]
        return view


class TorchZip(Weights):
    """``.bin`` file of torch; most mutations are refused before torch loads them."""

    name = "torch-zip"
    weight = 1
    targets = (f"{SOURCE}/pytorch_model.bin",)
    extra = ("--allow-pickle",)
    options: ClassVar[Mapping[str, Any]] = {}

    def write(self, folder: Path, weights: Arrays, example: Golden) -> None:
        import torch

        tensors = {name: torch.from_numpy(array.copy()) for name, array in weights.items()}
        torch.save(tensors, folder / "pytorch_model.bin", **self.options)

    def mutations(self, path: Path) -> Sequence[Mutate]:
        return (*BYTES, *[archive_mutation] * len(BYTES))

    def view(self, folder: Path) -> Arrays:
        import torch

        file = folder / "pytorch_model.bin"
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        tensors = tensors.get("state_dict", tensors)
        return {n: t.numpy() for n, t in tensors.items() if isinstance(t, torch.Tensor)}


class TorchLegacy(TorchZip):
    """``.bin`` file in the format before torch 1.6."""

    name = "torch-legacy"
    options: ClassVar[Mapping[str, Any]] = {"_use_new_zipfile_serialization": False}

    def mutations(self, path: Path) -> Sequence[Mutate]:
        return (*BYTES, *[stream_mutation] * len(BYTES))


class Hdf5(Weights):
    name = "hdf5"
    case = ("elmo", "none")
    targets = (f"{SOURCE}/small_weights.hdf5", f"{SOURCE}/small_options.json")

    def write(self, folder: Path, weights: Arrays, example: Golden) -> None:
        import h5py

        (folder / "config.json").rename(folder / "small_options.json")
        with h5py.File(folder / "small_weights.hdf5", "w") as file:
            for name, array in weights.items():
                file.create_dataset(name, data=array)

    def view(self, folder: Path) -> Arrays:
        import h5py

        view: dict[str, Any] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                view[name] = item[()]

        with h5py.File(folder / "small_weights.hdf5") as file:
            file.visititems(visit)
        return view


class Npy(Weights):
    name = "npy"
    case = ("gpt", "first-none")
    targets = (f"{SOURCE}/*.npy", f"{SOURCE}/params_shapes.json")

    def write(self, folder: Path, weights: Arrays, example: Golden) -> None:
        from tests.fuzz.readers.examples import openai_order

        arrays = openai_order(weights)
        flat = np.concatenate([array.reshape(-1) for array in arrays.values()])
        for number, piece in enumerate(np.array_split(flat, 3)):
            np.save(folder / f"params_{number}.npy", piece)
        shapes = [list(array.shape) for array in arrays.values()]
        (folder / "params_shapes.json").write_text(json.dumps(shapes))

    def view(self, folder: Path) -> Arrays:
        from tests.fuzz.readers.examples import openai_order

        sizes = json.loads((folder.parent.parent / "shapes.json").read_text())
        names = openai_order(dict.fromkeys(sizes, np.zeros(0)))
        files = sorted(folder.glob("params_*.npy"), key=lambda p: int(p.stem.split("_")[1]))
        flat = np.concatenate([np.load(file, allow_pickle=False) for file in files])
        ends = np.cumsum([sizes[name] for name in names])[:-1]
        return dict(zip(names, np.split(flat, ends), strict=True))


def _numbered(weights: Arrays) -> Arrays:
    """Return arrays whose elements have consecutive integers as bits."""
    start = 0
    numbered = {}
    for name, array in weights.items():
        numbers = np.arange(start, start + array.size, dtype=np.int32)
        numbered[name] = numbers.view(np.float32).reshape(array.shape)
        start += array.size
    return numbered


def stored(folder: Path) -> dict[str, Any]:
    """Return the tensors of a safetensors file, read by the safetensors package."""
    from safetensors.numpy import load_file

    tensors: dict[str, Any] = load_file(folder / "model.safetensors")
    return tensors


class TensorFlow(Reader):
    """TensorFlow 1 release; its checksums permit the unchanged result only."""

    name = "tensorflow"
    targets = (f"{SOURCE}/*.index", f"{SOURCE}/*.data-*", f"{SOURCE}/config.json")

    def make(self, folder: Path) -> None:
        from tests.fuzz.readers.examples import released

        released(folder / "scene" / SOURCE)
        released(folder / "sound" / SOURCE)
        zoo(folder / "sound", self.commands(Random(0))[0])

    def commands(self, random: Random) -> list[list[str]]:
        return [["convert", SOURCE, "-o", RESULT]]

    def check(self, folder: Path) -> str:
        sound = stored(folder.parent / "sound" / RESULT)
        result = stored(folder / RESULT)
        for name, array in result.items():
            if name not in sound or array.tobytes() != sound[name].tobytes():
                return f"{name} differs"
        return ""


class Gguf(Weights):
    """File of llama.cpp, exported in float32."""

    name = "gguf"
    weight = 2
    targets = (f"{SOURCE}/{GGUF_FILE}",)
    precision = "float32"
    dtypes = ("float32", "float16", "bfloat16")  # a changed type has other values

    def make(self, folder: Path) -> None:
        hub = folder / "made" / "hub"
        write_files(hub_model(hub, "bert", 40), bert_files())
        zoo(folder / "made", ["convert", "hub", "-o", "model"])
        for place, precision in (("numbered", "float32"), ("scene", self.precision)):
            export = ["--to", "gguf", "--unverified", "--dtype", precision, "-o", place]
            zoo(folder / "made", ["export", "model", *export])
            (folder / place / SOURCE).mkdir(parents=True)
            file = folder / place / SOURCE / GGUF_FILE
            (folder / "made" / place / GGUF_FILE).rename(file)
        sizes = number_elements(folder / "numbered" / SOURCE / GGUF_FILE)
        (folder / "shapes.json").write_text(json.dumps(sizes))
        zoo(folder / "numbered", self.commands(Random(0))[0])
        result = stored(folder / "numbered" / RESULT)
        np.savez(folder / NUMBERS, **{k: v.view(np.int32) for k, v in result.items()})

    def commands(self, random: Random) -> list[list[str]]:
        return [["convert", f"{SOURCE}/{GGUF_FILE}", "-o", RESULT]]

    def mutations(self, path: Path) -> Sequence[Mutate]:
        return (*BYTES, *[header_mutation] * (2 * len(BYTES)))

    def check(self, folder: Path) -> str:
        sizes = json.loads((folder.parent / "shapes.json").read_text())
        found = {name: array.size for name, array in self.view(folder / SOURCE).items()}
        # a sound header of a model of another size, whose elements have other numbers
        return "" if found != sizes else super().check(folder)

    def write(self, folder: Path, weights: Arrays, example: Golden) -> None:
        raise NotImplementedError("the file is an export")

    def view(self, folder: Path) -> Arrays:
        import gguf

        reader = gguf.GGUFReader(folder / GGUF_FILE)
        with np.errstate(all="ignore"):
            return {
                tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                for tensor in reader.tensors
            }


class QuantizedGguf(Gguf):
    """File of llama.cpp with 8-bit weights."""

    name = "gguf-quantized"
    weight = 1
    precision = "q8_0"


def number_elements(file: Path) -> dict[str, int]:
    """Give the elements of a GGUF file consecutive integers as bits; return tensor -> elements."""
    import gguf

    start = 0
    sizes = {}
    for tensor in gguf.GGUFReader(file, "r+").tensors:
        size = tensor.data.size
        tensor.data.view(np.int32)[:] = np.arange(start, start + size).reshape(tensor.data.shape)
        start = start + size
        sizes[tensor.name] = size
    return sizes


READERS = (
    Safetensors(),
    Sharded(),
    TorchZip(),
    TorchLegacy(),
    Hdf5(),
    Npy(),
    TensorFlow(),
    Gguf(),
    QuantizedGguf(),
)
