"""Golden files: weights in the Hub's layout, inputs, and what the reference library computed.

One safetensors file holds all of it, so that a family is checked where the library is not
installed. Tensors are called ``weights/<Hub name>``, ``inputs/<name>`` and ``outputs/<name>``;
the metadata says the head, the Hub configuration, and who made the file.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.tensors.safetensors import SafetensorsReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.families.base import Family
    from zoo.families.config import Config

    Arrays = dict[str, NDArray[np.generic[Any]]]


@dataclass(frozen=True)
class Golden:
    """The contents of a golden file.

    Attributes:
        head: the head's name.
        hub_config: the configuration, in the Hub's keys.
        weights: the weights, under the Hub's names.
        inputs: a batch.
        outputs: what the reference computed from them in float64, under our output names.
    """

    head: str
    hub_config: dict[str, Any]
    weights: "Arrays"
    inputs: "Arrays"
    outputs: "Arrays"

    @classmethod
    def read(cls, path: Path) -> "Golden":
        """Read a golden file."""
        parts: dict[str, Arrays] = {"weights": {}, "inputs": {}, "outputs": {}}
        with SafetensorsReader([path]) as reader:
            for name in reader.tensors:
                kind, _, rest = name.partition("/")
                parts[kind][rest] = reader.read(name).copy()
            facts = reader.metadata
        return cls(facts["head"], json.loads(facts["config"]), **parts)

    def convert(self, family: "Family") -> "tuple[Config, Arrays]":
        """Take the configuration and the weights to our terms, with a closed account.

        Raises:
            VerificationError: a tensor is left over, missing or of another shape.
        """
        from zoo.io.tensors.formats import TensorInfo
        from zoo.weights import match_tensors

        config = family.from_hf(self.hub_config).config
        tensors = {name: TensorInfo("F32", a.shape) for name, a in self.weights.items()}
        account = match_tensors(family.weights(config, self.head), tensors)
        account.raise_if_incomplete(f"golden file of {family.name} with head {self.head}")
        if account.absent:
            import msgspec

            config = msgspec.structs.replace(config, **dict.fromkeys(account.absent, False))
        state = {}
        for move in account.moves:
            arrays = [self.weights[name] for name in move.names]
            state[move.entry.target] = move.entry.op.to_ours(arrays, move.entry.shape)
        for name, drop in account.drops.items():
            if drop.value_check is not None and not drop.value_check(self.weights[name]):
                raise VerificationError(f"{name} holds other values than {drop.reason}")
        return config, state
