"""Base class of the sessions of export targets."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.exporting.targets import find_target
from zoo.inference.check_outputs import IDS, check_result
from zoo.inference.session import Session
from zoo.inference.validate_inputs import check_inputs, check_outputs, complete_inputs
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.inference.generation.decoder import SessionDecoder
    from zoo.inference.session import Arrays, Floats

MASK = "attention_mask"
TYPES = "token_type_ids"


class TargetSession(Session):
    """A model in the runtime of an export target, on the CPU.

    A subclass implements ``compute``; inputs and outputs are checked against the family's.
    """

    reads_token_types: ClassVar[bool] = True
    # Whether ``compute`` also gets the inputs that are not given, with their defaults.
    completes_inputs: ClassVar[bool] = True

    def __init__(
        self,
        checkpoint: Checkpoint,
        backend: str,
        dtype: str,
        outputs: Sequence[str] | None = None,  # by default the family's
    ) -> None:
        self._spec = checkpoint.onnx_spec
        self._config = checkpoint.config
        self._name = checkpoint.name
        self.backend = backend
        self.device = "cpu"
        self.dtype = dtype
        self.inputs = tuple(
            name for name in self._spec.inputs if self.reads_token_types or name != TYPES
        )
        self.outputs = tuple(self._spec.outputs if outputs is None else outputs)

    @override
    def run(self, inputs: "Arrays", outputs: Sequence[str] | None = None) -> "dict[str, Floats]":
        names = check_outputs(outputs, self.outputs)
        prepare_inputs = complete_inputs if self.completes_inputs else check_inputs
        arrays, sizes = prepare_inputs(inputs, self._spec, self._config)
        if TYPES in arrays and TYPES not in self.inputs and arrays.pop(TYPES).any():
            raise UsageError(
                f"{self.backend} does not read token types, which tell the texts of a pair apart",
                "use --backend cpu or --backend onnx",
            )
        results = self.compute(arrays, names)
        for name in names:
            if name in self._spec.outputs:
                axes = self._spec.outputs[name]
                check_result(self._name, name, results[name], axes, sizes)
        return {name: np.asarray(results[name], np.float32) for name in names}

    @override
    def decoder(self) -> "SessionDecoder":
        raise UsageError(
            f"{self._name} holds a model for {find_target(self.backend).title} without a key-value "
            "cache, which cannot generate",
            "export it to ONNX, or generate in torch",
        )

    @abstractmethod
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        """Return named outputs for checked inputs; see ``completes_inputs``."""


def row_lengths(arrays: "Mapping[str, NDArray[np.int64]]") -> "NDArray[np.int32]":
    """Return the number of tokens of each row, for runtimes that take it in place of a mask."""
    if MASK not in arrays:  # There is no padding.
        rows, width = arrays[IDS].shape
        return np.array([width] * rows, np.int32)
    mask = arrays[MASK].astype(bool)
    lengths: NDArray[np.int32] = mask.sum(1, dtype=np.int32)
    if (mask != (np.arange(mask.shape[1]) < lengths[:, None])).any():
        raise UsageError("the runtime takes rows with padding on the right", "pad them there")
    return lengths
