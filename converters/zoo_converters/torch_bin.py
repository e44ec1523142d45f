"""The PyTorch format: ``.bin``, in one file or in shards, and Composer's checkpoints, ``.pt``."""

import fnmatch
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zoo.errors import UsageError, VerificationError
from zoo.io.tensors.file_array import DataFile, FileArray
from zoo.io.tensors.formats import STORAGE, Format, TensorInfo, TensorReader, TensorToWrite
from zoo.overrides import override
from zoo_converters.shards import choose, open_index

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.progress import Advance
    from zoo_converters.torch_file import Contents

    Array = NDArray[np.generic[Any]]

CHUNK = 1 << 24


class TorchBin(Format):
    """File format of ``torch.save``.

    Its files are pickles, which may run code in other readers, and are read only on request; no
    code in them is executed.
    """

    name: ClassVar[str] = "pytorch"
    executable: ClassVar[bool] = True

    def __init__(self, *, ignore_crc: bool = False) -> None:
        self._ignore_crc = ignore_crc

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        return choose(names, "pytorch_model", "bin")

    @override
    def without_checksums(self) -> Self:
        return type(self)(ignore_crc=True)

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        from zoo_converters.torch_file import inspect

        index = open_index(directory, names)
        files = [directory / name for name in names] if index is None else index.files
        contents = [inspect(path, ignore_crc=self._ignore_crc) for path in files]
        if index is not None:
            index.check_tensors({content.path: content.views for content in contents})
        return TorchBinReader(contents, ignore_crc=self._ignore_crc)

    @override
    def write(
        self, directory: Path, outputs: "Sequence[TensorToWrite]", advance: "Advance"
    ) -> list[Path]:
        import numpy as np
        import torch

        path = directory / "pytorch_model.bin"
        tensors = {}
        for output in outputs:
            pieces = [piece.reshape(-1) for piece in output.chunks()]
            tensor = torch.from_numpy(np.concatenate(pieces))
            if output.info.dtype == "BF16":
                tensor = tensor.view(torch.bfloat16)
            tensors[output.name] = tensor.reshape(output.info.shape)
            advance(output.info.nbytes)
        torch.save(tensors, path)
        return [path]


class ComposerCheckpoint(TorchBin):
    """Checkpoint of a training run of MosaicML's Composer, such as ``ep0-ba1000-rank0.pt``.

    Only the model is read; optimizers, loaders and random states are passed over, and not made.
    """

    name: ClassVar[str] = "composer"
    priority: ClassVar[int] = -1

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted(fnmatch.filter(names, "*-rank0.pt")))

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        from zoo_converters.torch_file import inspect

        if len(names) > 1:
            raise UsageError(
                f"{directory} holds {len(names)} checkpoints of Composer: {', '.join(names)}",
                "put the one to convert into a directory of its own, with config.json",
            )
        contents = [
            inspect(directory / name, ignore_crc=self._ignore_crc, of_run=True) for name in names
        ]
        return TorchBinReader(contents, ignore_crc=self._ignore_crc)


class TorchBinReader(TensorReader):
    """Reader of one or several ``.bin`` files as one set of tensors."""

    def __init__(self, contents: "Sequence[Contents]", *, ignore_crc: bool = False) -> None:
        self.files = [content.path for content in contents]
        self.tensors: dict[str, TensorInfo] = {}
        files = [_BinFile(content, ignore_crc) for content in contents]
        self._files: dict[str, _BinFile] = {}
        for content, file in zip(contents, files, strict=True):
            for name in content.views.keys() & self.tensors.keys():
                raise VerificationError(f"{name} is in {content.path} and in another shard")
            self.tensors |= content.tensors
            self._files |= dict.fromkeys(content.views, file)

    @override
    def read(self, name: str) -> "Array":
        import numpy as np

        array = self.lazy(name)
        array = array if isinstance(array, np.ndarray) else array.read()
        array.flags.writeable = False
        return array

    @override
    def lazy(self, name: str) -> "Array | FileArray":
        return self._files[name].array(name)


class _BinFile:
    """One file, opened when its first tensor is read."""

    def __init__(self, contents: "Contents", ignore_crc: bool) -> None:
        self._file = DataFile(contents.path, contents.size)
        self._contents = contents
        self._ignore_crc = ignore_crc
        self._checked: set[str] = set()

    def array(self, name: str) -> "Array | FileArray":
        """Return a tensor; a copy in memory if the byte order of the file is not native."""
        import numpy as np

        view = self._contents.views[name]
        code = STORAGE[view.info.dtype]
        if not view.info.nbytes:
            return np.empty(view.info.shape, code)
        self._check(view.storage.key)
        width = int(code[2:])
        # the stride of a dimension of size 1 is never used, and may be any number
        steps = zip(view.info.shape, view.strides, strict=True)
        strides = tuple(step * width if size > 1 else 0 for size, step in steps)
        offset = self._contents.records[view.storage.key].offset + view.offset * width
        array = FileArray(self._file, code, view.info.shape, strides, offset)
        return array.read().byteswap() if self._contents.big_endian else array

    def _check(self, key: str) -> None:
        """Compare a storage with its checksum on its first use."""
        record = self._contents.records[key]
        if self._ignore_crc or record.crc is None or key in self._checked:
            return
        crc = 0
        for start in range(record.offset, record.offset + record.length, CHUNK):
            count = min(CHUNK, record.offset + record.length - start)
            content = FileArray.stored(self._file, "|u1", (count,), start)
            crc = zlib.crc32(content.read().data, crc)
        if crc != record.crc:
            from zoo_converters.torch_file import wrong_checksum

            raise wrong_checksum(self._contents.path, f"data/{key}")
        self._checked.add(key)
