"""Checkpoints of other releases, seen under the Hub's names.

A format may hold tensors under names that the Hub never used, and matrices the other way round. A
family says what each one is; from there on a conversion goes as from the Hub's own files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.formats import TensorInfo, TensorReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SLOTS = ("adam_m", "adam_v", "global_step")
LAST = {
    "gamma": "weight",
    "beta": "bias",
    "kernel": "weight",
    "output_weights": "weight",
    "output_bias": "bias",
}


@dataclass(frozen=True)
class Foreign:
    """What a tensor of another release is on the Hub.

    Attributes:
        name: the Hub's name for it; its own, if it is left out.
        transposed: whether the Hub stores the matrix the other way round.
        because: why it is left out, if it is.
    """

    name: str
    transposed: bool = False
    because: str = ""


class ForeignReader(TensorReader):
    """A reader whose tensors bear the Hub's names and shapes.

    Args:
        inner: the reader of the files.
        translate: says what each tensor is.
    """

    def __init__(self, inner: TensorReader, translate: Callable[[str], Foreign]) -> None:
        self.inner = inner
        self.files = inner.files
        found = {name: translate(name) for name in inner.tensors}
        self.own = {foreign.name: name for name, foreign in found.items()}
        self.transposed = {f.name for f in found.values() if f.transposed}
        self.left = {f.name: f.because for f in found.values() if f.because}
        self.tensors = {hub: self._info(inner.tensors[name], hub) for hub, name in self.own.items()}

    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        """See ``TensorReader``."""
        array = self.inner.read(self.own[name])
        return array.T if name in self.transposed else array

    def release(self, name: str) -> None:
        """See ``TensorReader``."""
        self.inner.release(self.own[name])

    def close(self) -> None:
        """See ``TensorReader``."""
        self.inner.close()

    def _info(self, info: TensorInfo, name: str) -> TensorInfo:
        return info._replace(shape=info.shape[::-1]) if name in self.transposed else info


def tensorflow_name(name: str) -> Foreign:
    """Translate a name of Google's TensorFlow encoders, whose layers the Hub's names follow.

    Kernels are (in, out) in TensorFlow and (out, in) on the Hub; slots of the optimizer are left
    out.
    """
    parts = name.split("/")
    if parts[-1] in SLOTS:
        return Foreign(name, because="a slot of the optimizer, not a weight")
    path = [f"layer.{part[6:]}" if part.startswith("layer_") else part for part in parts[:-1]]
    last = LAST.get(parts[-1], parts[-1])
    if parts[-1].endswith("_embeddings"):
        last += ".weight"
    return Foreign(".".join([*path, last]), transposed=parts[-1] == "kernel")
