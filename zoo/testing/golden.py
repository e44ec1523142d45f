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
from zoo.safetensors import SafetensorsReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.config import Config
    from zoo.family import Family

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
        from zoo.formats import TensorInfo
        from zoo.weights import account_for

        config = family.from_hub(self.hub_config).config
        tensors = {name: TensorInfo("F32", a.shape) for name, a in self.weights.items()}
        account = account_for(family.weights(config, self.head), tensors)
        account.require_closed(f"golden file of {family.name} with head {self.head}")
        if account.absent:
            import msgspec

            config = msgspec.structs.replace(config, **dict.fromkeys(account.absent, False))
        state = {}
        for move in account.moves:
            arrays = [self.weights[name] for name in move.names]
            state[move.entry.target] = move.entry.op.to_ours(arrays, move.entry.shape)
        for name, drop in account.drops.items():
            if drop.must is not None and not drop.must(self.weights[name]):
                raise VerificationError(f"{name} holds other values than {drop.because}")
        return config, state
