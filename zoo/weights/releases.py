"""Checkpoints of other releases, read under the Hub's names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.tensors.formats import TensorReader
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    Array = NDArray[np.generic[Any]] | FileArray

# variables of the optimizer
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
    """The Hub's counterpart of a tensor of another release.

    Attributes:
        name: the Hub name; the release's name for a tensor that is left out.
        transposed: whether the Hub stores the transposed matrix.
        squeezed: whether the release has a first axis of size 1 that the Hub lacks.
        reason: the reason to leave the tensor out; empty for one that is read.
    """

    name: str
    transposed: bool = False
    squeezed: bool = False
    reason: str = ""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape on the Hub for the shape in the release."""
        if self.squeezed and len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        return shape[::-1] if self.transposed else shape


class RenamingReader(TensorReader):
    """A reader of another release's files, with the Hub's names and shapes."""

    # A release may store tensors under names that the Hub never used, and matrices transposed. A
    # family maps each to its Hub name; then it is converted like the Hub's own files.

    def __init__(self, inner: TensorReader, renamed: Mapping[str, ReleaseTensor]) -> None:
        self.inner = inner
        self.files = inner.files
        self.left = {name: tensor.reason for name, tensor in renamed.items() if tensor.reason}
        self.by_hub_name: dict[str, tuple[str, ReleaseTensor]] = {}
        self.tensors = {}
        for name, tensor in renamed.items():
            hub_name = name if tensor.reason else tensor.name
            first_name, _ = self.by_hub_name.setdefault(hub_name, (name, tensor))
            if first_name != name:
                raise VerificationError(
                    f"{inner.files[0]}: {first_name} and {name} are both {hub_name}"
                )
            info = inner.tensors[name]
            self.tensors[hub_name] = info._replace(shape=tensor.shape(info.shape))

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        import numpy as np

        return np.asarray(self._shaped(name, self.inner.read(self.by_hub_name[name][0])))

    @override
    def lazy(self, name: str) -> "Array":
        return self._shaped(name, self.inner.lazy(self.by_hub_name[name][0]))

    @override
    def close(self) -> None:
        self.inner.close()

    def _shaped(self, name: str, array: "Array") -> "Array":
        shape = self.tensors[name].shape
        transposed = self.by_hub_name[name][1].transposed
        return array.reshape(shape[::-1]).T if transposed else array.reshape(shape)


def tf_encoder_name(name: str, spelled: str | None = None) -> ReleaseTensor:
    """Return the Hub's counterpart of a tensor of Google's TensorFlow encoders.

    Kernels are (in, out) in TensorFlow and (out, in) on the Hub; variables of the optimizer are
    left out.

    Args:
        name: name in the file.
        spelled: the name with the Hub's words for modules, where the release has others.
    """
    parts = (spelled or name).split("/")
    if parts[-1] in SLOTS:
        return ReleaseTensor(name, reason="a slot of the optimizer, not a weight")
    path = [f"layer.{part[6:]}" if part.startswith("layer_") else part for part in parts[:-1]]
    last = LAST.get(parts[-1], parts[-1])
    if parts[-1].endswith("_embeddings"):
        last += ".weight"
    return ReleaseTensor(".".join([*path, last]), transposed=parts[-1] == "kernel")
