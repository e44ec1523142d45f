"""Sessions over static embeddings: a look-up, which needs no runtime and no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.checkpoint import WEIGHTS, Checkpoint
from zoo.errors import VerificationError, first_names
from zoo.exporting.targets.session import MASK, TargetSession
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray


class StaticSession(TargetSession):
    """The vectors of tokens."""

    def __init__(self, checkpoint: Checkpoint, folder: Path, precision: str) -> None:
        super().__init__(checkpoint, "static", precision)
        entries = checkpoint.weights.entries()
        expected = {name: entry.shape for entry in entries for name in entry.sources}
        path = folder / WEIGHTS
        with SafetensorsReader([path]) as reader:
            name, *others = expected
            shapes = {key: info.shape for key, info in reader.tensors.items()}
            if others or shapes != expected:
                raise VerificationError(
                    f"{path} holds {first_names(list(shapes))}, and not the one table of vectors",
                    "export it again",
                )
            self._table = np.array(reader.read(name))

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        # the vector of the unknown token is zero, so that it adds nothing to a sum
        vectors = self._table[arrays["input_ids"]].astype(np.float32)
        return {name: vectors * arrays[MASK][..., None] for name in names}
