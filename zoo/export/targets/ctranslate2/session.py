"""Sessions over CTranslate2, on the CPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctranslate2
import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.errors import VerificationError
from zoo.export.targets.session import TYPES, TargetSession, row_lengths
from zoo.families.onnx import LOGITS
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray

# half precision is stored, and a CPU computes in float32
COMPUTE = {"float32": "float32", "float16": "float32", "bfloat16": "float32", "int8": "int8"}


def open_model(
    checkpoint: Checkpoint, folder: Path, precision: str, threads: int | None
) -> "CTranslate2Session":
    """Open a model with the class of its architecture."""
    generates = checkpoint.head.has_cache
    kind = ctranslate2.Generator if generates else ctranslate2.Encoder
    return CTranslate2Session(checkpoint, folder, precision, threads, kind)


class CTranslate2Session(TargetSession):
    """A model in CTranslate2."""

    def __init__(
        self, checkpoint: Checkpoint, folder: Path, precision: str, threads: int | None, kind: Any
    ) -> None:
        super().__init__(checkpoint, "ctranslate2", precision)
        try:
            self._model = kind(
                str(folder),
                device="cpu",
                compute_type=COMPUTE[precision],
                inter_threads=1,
                intra_threads=threads or 0,
            )
        except (RuntimeError, ValueError) as error:
            line = " ".join(str(error).split())
            raise VerificationError(
                f"{folder}: CTranslate2 {ctranslate2.__version__} refuses it: {line:.300}",
                "export it again",
            ) from error

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        tokens, lengths = _view(arrays["input_ids"]), _view(row_lengths(arrays))
        types = arrays.get(TYPES)
        try:
            if LOGITS in names:
                logits = self._model.forward_batch(tokens, lengths)
                return {LOGITS: np.array(logits)}
            more = {} if types is None else {TYPES: types.tolist()}
            output = self._model.forward_batch(tokens, lengths, **more)
        except (RuntimeError, ValueError) as error:
            line = " ".join(str(error).split())
            raise VerificationError(f"CTranslate2 fails: {line:.300}") from error
        found = {"last_hidden_state": np.array(output.last_hidden_state)}
        if output.pooler_output is not None:
            found["pooler_output"] = np.array(output.pooler_output)
        return found


def _view(array: "NDArray[np.int64]") -> Any:
    return ctranslate2.StorageView.from_array(np.ascontiguousarray(array, np.int32))
