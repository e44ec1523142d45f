"""The process that loads a ``.bin`` file: it has torch, limits, and no way to the outside.

It is told what the files hold, by a scan that ran nothing, and hands back those tensors as
safetensors, in files that were opened for it. It imports torch first and is confined after that,
before it opens the first file.
"""

import contextlib
import errno
import os
from collections.abc import Mapping
from typing import Any

OLDEST = (2, 10)  # before, weights_only could be made to write outside of its memory
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
# exit statuses, apart from those of an interpreter that fails
DONE, REFUSED, MEMORY, SPACE, VERSION = 0, 10, 11, 12, 13


def main(job: Mapping[str, Any]) -> None:
    """Do a job, print why it failed if it did, and exit with one of the statuses above.

    Args:
        job: ``files``, each with ``path``, ``zipped``, ``wrapper``, ``tensors`` (name to dtype
            and shape) and ``output`` (a file descriptor); and the limits ``memory``, ``output``
            and ``seconds``.
    """
    try:
        status, why = _work(job)
    except Exception as error:  # what torch's loader raises is not documented
        status, why = _status(error), f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):  # the disk may be full
        print("\n" + " ".join(why.split()), flush=True)
    os._exit(status)  # nothing here needs to be taken down in order


def _work(job: Mapping[str, Any]) -> tuple[int, str]:
    import torch

    import zoo.safetensors  # noqa: F401 (before the fences are up)
    from zoo_converters.confine import forbid_python, limit_resources
    from zoo_converters.syscalls import forbid_system_calls

    if too_old(torch.__version__):
        return VERSION, str(torch.__version__)
    torch.set_num_threads(1)
    limit_resources(memory=job["memory"], output=job["output"], seconds=job["seconds"])
    forbid_system_calls()
    forbid_python()
    for file in job["files"]:
        _convert(**file)
    return DONE, ""


def too_old(version: str) -> bool:
    """Whether a release of torch, such as ``2.9.1+cu128``, has a loader that is not safe."""
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) < OLDEST


def _convert(
    path: str, zipped: bool, wrapper: str | None, tensors: Mapping[str, Any], output: int
) -> None:
    import torch

    from zoo.formats import TensorInfo
    from zoo.safetensors import header_bytes, write_pieces

    loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    state = loaded if wrapper is None else loaded[wrapper]
    infos = {name: TensorInfo(dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()}
    with open(output, "wb") as file:
        file.write(header_bytes(infos, {}))
        write_pieces(file, (_array(name, state[name], info) for name, info in infos.items()))


def _array(name: str, tensor: Any, expected: Any) -> Any:
    """Return a tensor's bytes, if it is what the scan has seen."""
    import torch

    from zoo_converters.pickle_values import DTYPES

    if (
        type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or tensor.layout != torch.strided
        or DTYPES.get(str(tensor.dtype)) != expected.dtype
        or tuple(tensor.shape) != expected.shape
    ):
        raise ValueError(f"{name} is not the tensor that its pickle describes")
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def _status(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return SPACE
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return MEMORY
    return REFUSED
