"""Checkpoints of other releases, seen under the Hub's names.

A format may hold tensors under names that the Hub never used, and matrices the other way round. A
family says what each one is; from there on a conversion goes as from the Hub's own files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.tensors.formats import TensorInfo, TensorReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    Array = NDArray[np.generic[Any]] | FileArray

SLOTS = ("adam_m", "adam_v", "global_step")
LAST = {
    "gamma": "weight",
    "beta": "bias",
    "kernel": "weight",
    "output_weights": "weight",
    "output_bias": "bias",
}


@dataclass(frozen=True)
class ReleaseTensor:
    """What a tensor of another release is on the Hub.

    Attributes:
        name: the Hub's name for it; it keeps its own, if it is left out.
        transposed: whether the Hub stores the matrix the other way round.
        squeezed: whether the release has a first axis of size 1 that the Hub lacks.
        reason: why it is left out, if it is.
    """

    name: str
    transposed: bool = False
    squeezed: bool = False
    reason: str = ""

    def shape(self, own: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape on the Hub of a tensor that has the shape ``own`` in the release."""
        if self.squeezed and len(own) > 1 and own[0] == 1:
            own = own[1:]
        return own[::-1] if self.transposed else own


class RenamingReader(TensorReader):
    """A reader whose tensors bear the Hub's names and shapes.

    Args:
        inner: the reader of the files.
        found: what each of its tensors is.

    Raises:
        VerificationError: two of them are the same.
    """

    def __init__(self, inner: TensorReader, found: Mapping[str, ReleaseTensor]) -> None:
        self.inner = inner
        self.files = inner.files
        self.left = {own: foreign.reason for own, foreign in found.items() if foreign.reason}
        self.known: dict[str, tuple[str, ReleaseTensor]] = {}
        for own, foreign in found.items():
            name = own if foreign.reason else foreign.name
            other, _ = self.known.setdefault(name, (own, foreign))
            if other != own:
                raise VerificationError(f"{inner.files[0]}: {other} and {own} are both {name}")
        self.tensors = {
            name: self._info(inner.tensors[own], foreign)
            for name, (own, foreign) in self.known.items()
        }

    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        """See ``TensorReader``."""
        import numpy as np

        return np.asarray(self._shaped(name, self.inner.read(self.known[name][0])))

    def lazy(self, name: str) -> "Array":
        """See ``TensorReader``."""
        return self._shaped(name, self.inner.lazy(self.known[name][0]))

    def close(self) -> None:
        """See ``TensorReader``."""
        self.inner.close()

    def _shaped(self, name: str, array: "Array") -> "Array":
        shape = self.tensors[name].shape
        transposed = self.known[name][1].transposed
        return array.reshape(shape[::-1]).T if transposed else array.reshape(shape)

    def _info(self, info: TensorInfo, foreign: ReleaseTensor) -> TensorInfo:
        return info._replace(shape=foreign.shape(info.shape))


def tf_encoder_name(name: str, spelled: str | None = None) -> ReleaseTensor:
    """Translate a name of Google's TensorFlow encoders, whose layers the Hub's names follow.

    Kernels are (in, out) in TensorFlow and (out, in) on the Hub; slots of the optimizer are left
    out.

    Args:
        name: the name in the file.
        spelled: what it would be if the family's code had the Hub's words.
    """
    parts = (spelled or name).split("/")
    if parts[-1] in SLOTS:
        return ReleaseTensor(name, reason="a slot of the optimizer, not a weight")
    path = [f"layer.{part[6:]}" if part.startswith("layer_") else part for part in parts[:-1]]
    last = LAST.get(parts[-1], parts[-1])
    if parts[-1].endswith("_embeddings"):
        last += ".weight"
    return ReleaseTensor(".".join([*path, last]), transposed=parts[-1] == "kernel")
