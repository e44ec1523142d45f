"""Devices and dtypes that torch can compute with on this machine."""

import torch

from zoo.errors import UsageError

CHOICES = "cpu, cuda or a numbered one such as cuda:1"


def resolve_device(backend: str, name: str | None) -> torch.device:
    """Return the device of a backend and a device name."""
    if name is None:
        uses_cuda = backend == "cuda" or (backend == "auto" and cuda_problem() is None)
        name = "cuda" if uses_cuda else "cpu"
    device = parse_device(name)
    if backend not in ("auto", device.type):
        raise UsageError(f"--device {name} is not one of the {backend} backend's", "leave one out")
    if device.type != "cuda":
        return device
    problem = cuda_problem()
    if problem:
        raise UsageError(f"CUDA is not available: {problem}")
    index = device.index or 0
    count = torch.cuda.device_count()
    if index >= count:
        hint = "there is cuda:0"
        if count > 1:
            hint = f"the last one is cuda:{count - 1}"
        raise UsageError(f"there is no device {device}", hint)
    return torch.device("cuda", index)


def parse_device(name: str) -> torch.device:
    """Return a device by name, without checking that this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"no device is called {name!r}", f"give {CHOICES}") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"the device {name} is not supported", f"give {CHOICES}")
    return device


def cuda_problem() -> str | None:
    """Return why CUDA is not available and a remedy, or ``None`` if it is."""
    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"torch {torch.__version__} is built without it; install a CUDA build of torch, "
            "or use --device cpu"
        )
    return (
        f"torch {torch.__version__} is built for it and sees no device; check the driver with "
        "nvidia-smi and that CUDA_VISIBLE_DEVICES hides nothing, or use --device cpu"
    )


def describe_cuda() -> str:
    """Return a line with torch's version and the CUDA devices."""
    count = torch.cuda.device_count()
    names = [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(count)]
    return f"torch {torch.__version__} on {', '.join(names)}"


def describe_cpu() -> str:
    """Return a line with torch's version, its threads and the dtypes that the CPU computes in."""
    dtypes = "float32, float64 and bfloat16" if has_bfloat16() else "float32 and float64"
    return f"torch {torch.__version__}, {torch.get_num_threads()} threads, {dtypes}"


def resolve_dtype(name: str | None, device: torch.device, file_dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: without a name float32 on a CPU, else the files'."""
    if name is None:
        computable = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        if device.type != "cpu" and file_dtype in computable:
            return file_dtype
        return torch.float32
    if device.type == "cpu" and name == "float16":
        raise UsageError(
            "CPUs do not compute in float16",
            "use float32, also for files in float16, or bfloat16; `zoo run embed --output-dtype "
            "float16` writes vectors in float16",
        )
    if device.type == "cpu" and name == "bfloat16" and not has_bfloat16():
        raise UsageError(
            "this CPU does not compute in bfloat16: it has neither AMX nor AVX512-BF16",
            "use float32",
        )
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def has_bfloat16() -> bool:
    """Return whether this CPU multiplies bfloat16 matrices in hardware."""
    if hasattr(torch.cpu, "get_capabilities"):  # Newer releases of torch have it.
        capabilities = torch.cpu.get_capabilities()
        names = ("avx512_bf16", "amx_bf16", "bf16")
        return any(capabilities.get(name, False) for name in names)
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in probes)
