"""safetensors, in one file or in shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from zoo.io.tensors.formats import Format, TensorReader
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo_converters.shards import choose, open_index


class Safetensors(Format):
    """Files of the safetensors package. Nothing in them can run, so they come first."""

    name: ClassVar[str] = "safetensors"
    priority: ClassVar[int] = 10

    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """See ``Format``. A file by another name is taken if it is the only one.

        Adapters are not: they hold what is added to the weights of another checkpoint.
        """
        found = choose(names, "model", "safetensors")
        if found:
            return found
        others = [
            name
            for name in names
            if name.endswith(".safetensors") and "/" not in name and not name.startswith("adapter")
        ]
        return tuple(others) if len(others) == 1 else ()

    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        """See ``Format``."""
        index = open_index(directory, names)
        if index is None:
            return SafetensorsReader([directory / name for name in names])
        reader = SafetensorsReader(index.files)
        held: dict[Path, list[str]] = {path: [] for path in index.files}
        for name in reader.tensors:
            held[reader.file_of(name)].append(name)
        index.check_tensors(held)
        return reader
