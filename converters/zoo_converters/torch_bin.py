"""PyTorch's ``.bin``: a pickle, in one file or in shards, read in a confined process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import VerificationError
from zoo.formats import Format, TensorInfo, TensorReader
from zoo_converters.shards import choose, open_index

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.spans import Span
    from zoo_converters.sandbox import Extracted
    from zoo_converters.torch_file import Contents


class TorchBin(Format):
    """State dicts that ``torch.save`` wrote. Reading one may run what it says, so that it must
    be asked for; here nothing is run that is not on a short list.
    """

    name: ClassVar[str] = "pytorch"
    executable: ClassVar[bool] = True

    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """See ``Format``."""
        return choose(names, "pytorch_model", "bin")

    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        """See ``Format``. This scans the pickles and needs no torch; reading a tensor does."""
        from zoo_converters.torch_file import inspect

        index = open_index(directory, names)
        if index is None:
            return TorchBinReader([inspect(directory / name) for name in names])
        contents = [inspect(path) for path in index.files]
        index.check_tensors({each.path: each.tensors for each in contents})
        return TorchBinReader(contents)


class TorchBinReader(TensorReader):
    """``.bin`` files as one set of tensors, which are extracted when the first is read.

    Args:
        contents: what the scan found in each file.
    """

    def __init__(self, contents: "Sequence[Contents]") -> None:
        self.files = [each.path for each in contents]
        self.tensors: dict[str, TensorInfo] = {}
        for each in contents:
            for name in each.tensors.keys() & self.tensors.keys():
                raise VerificationError(f"{name} is in {each.path} and in another shard")
            self.tensors |= each.tensors
        self._contents = contents
        self._extracted: Extracted | None = None

    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        """See ``TensorReader``."""
        from zoo_converters.sandbox import Extracted

        if self._extracted is None:
            self._extracted = Extracted(self._contents)
        return self._extracted.reader.read(name)

    def locate(self, array: "NDArray[np.generic[Any]]") -> "Span | None":
        """See ``TensorReader``."""
        return self._extracted.reader.locate(array) if self._extracted else None

    def release(self, name: str) -> None:
        """See ``TensorReader``."""
        if self._extracted is not None:
            self._extracted.reader.release(name)

    def close(self) -> None:
        """See ``TensorReader``."""
        if self._extracted is not None:
            self._extracted.close()
            self._extracted = None
