"""Golden files: weights in the Hub's layout, inputs, and the outputs of the reference library."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.json import dump_json
from zoo.io.tensors.safetensors import SafetensorsReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.families.base import Family
    from zoo.families.config import Config

    Arrays = dict[str, NDArray[np.generic[Any]]]


@dataclass(frozen=True)
class Golden:
    """The contents of a golden file."""

    # One safetensors file holds all of it, so that a family is checked without the library. Tensors
    # are named ``weights/<Hub name>``, ``inputs/<name>`` and ``outputs/<name>``; the metadata holds
    # the head, the Hub configuration, and the version of the library that made the file.

    head: str
    hub_config: dict[str, Any]  # the configuration, with the Hub's keys
    weights: "Arrays"  # weights by Hub name
    inputs: "Arrays"  # a batch by input name
    outputs: "Arrays"  # outputs of the reference library in float64, by our output names

    @classmethod
    def read(cls, path: Path) -> "Golden":
        """Read a golden file."""
        parts: dict[str, Arrays] = {"weights": {}, "inputs": {}, "outputs": {}}
        with SafetensorsReader([path]) as reader:
            for name in reader.tensors:
                part, _, tensor_name = name.partition("/")
                parts[part][tensor_name] = reader.read(name).copy()
            metadata = reader.metadata
        return cls(metadata["head"], json.loads(metadata["config"]), **parts)

    def write(self, path: Path, made_with: str) -> None:
        """Write a golden file."""
        import numpy as np
        from safetensors.numpy import save_file

        parts = {"weights": self.weights, "inputs": self.inputs, "outputs": self.outputs}
        tensors = {
            f"{part}/{name}": np.ascontiguousarray(array)
            for part, arrays in parts.items()
            for name, array in arrays.items()
        }
        config = dump_json(self.hub_config, sort_keys=True)
        save_file(tensors, path, {"head": self.head, "config": config, "made_with": made_with})

    def convert(self, family: "Family") -> "tuple[Config, Arrays]":
        """Return the family's configuration and the state dict of its model."""
        from zoo.io.tensors.formats import TensorInfo
        from zoo.weights import match_tensors

        config = family.from_hub(self.hub_config).config
        tensors = {name: TensorInfo("F32", a.shape) for name, a in self.weights.items()}
        report = match_tensors(family.weights(config, self.head), tensors)
        report.raise_if_incomplete(f"golden file of {family.name} with head {self.head}")
        if report.absent:  # optional tensors that the file lacks, such as a pooler's
            import msgspec

            config = msgspec.structs.replace(config, **dict.fromkeys(report.absent, False))
        state_dict = {}
        for copy in report.copies:
            arrays = [self.weights[name] for name in copy.names]
            state_dict[copy.entry.target] = copy.entry.op.from_hub(arrays, copy.entry.shape)
        for name, drop in report.drops.items():
            if drop.value_check is not None and not drop.value_check(self.weights[name]):
                raise VerificationError(f"{name} holds other values than {drop.reason}")
        return config, state_dict
