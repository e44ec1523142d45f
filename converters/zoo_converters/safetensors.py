"""The safetensors format, in one file or in shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from zoo.io.tensors.formats import Format, TensorReader
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.overrides import override
from zoo_converters.shards import choose, open_index


class Safetensors(Format):
    """File format safetensors, which has precedence over all others."""

    name: ClassVar[str] = "safetensors"
    priority: ClassVar[int] = 10

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return ``model.safetensors`` or its shards, else the only safetensors file."""
        # Adapters are excluded, since they only modify the weights of another checkpoint
        files = choose(names, "model", "safetensors")
        if files:
            return files
        candidates = [
            name
            for name in names
            if name.endswith(".safetensors") and "/" not in name and not name.startswith("adapter")
        ]
        return tuple(candidates) if len(candidates) == 1 else ()

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        index = open_index(directory, names)
        if index is None:
            return SafetensorsReader([directory / name for name in names])
        reader = SafetensorsReader(index.files)
        held: dict[Path, list[str]] = {path: [] for path in index.files}
        for name in reader.tensors:
            held[reader.file_of(name)].append(name)
        index.check_tensors(held)
        return reader
