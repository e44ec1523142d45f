"""Memory of a conversion, which does not depend on the size of tensors."""

from pathlib import Path
from typing import Any

import pytest

from tests.conversion.sparse import sparse_checkpoint
from tests.processes import run_limited
from tests.reporting import record

MB = 1_000_000
BIG: dict[str, Any] = {
    "vocab_size": 40_000,
    "hidden_size": 1024,
    "num_hidden_layers": 1,
    "intermediate_size": 256,
}


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_large_tensor_is_converted_in_pieces(tmp_path: Path, dtype: str) -> None:
    size = sparse_checkpoint(tmp_path / "source", **BIG)
    assert size > 160 * MB
    command = ["zoo", "convert", tmp_path / "source", "-o", tmp_path / "out", "--dtype", dtype]
    done = run_limited(command, seconds=120, address_space=1000 * MB)
    assert done.returncode == 0, done.stderr
    assert done.peak_bytes < 120 * MB


@pytest.mark.long
@pytest.mark.parametrize("stored", ["F64", "F32", "F16", "BF16"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("to", ["zoo", "hub"])
def test_every_change_of_dtype(tmp_path: Path, stored: str, dtype: str, to: str) -> None:
    sparse_checkpoint(tmp_path / "source", dtype=stored, **BIG)
    command = ["zoo", "convert", tmp_path / "source", "-o", tmp_path / "out", "--dtype", dtype]
    done = run_limited([*command, "--to", to], seconds=300, address_space=1000 * MB)
    assert done.returncode == 0, done.stderr
    assert done.peak_bytes < 120 * MB


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--dtype", "bfloat16")])
def test_twelve_gigabyte_checkpoint(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The test needs as much disk space for the result."""
    size = sparse_checkpoint(
        tmp_path / "source",
        shard_bytes=5_000 * MB,
        vocab_size=250_000,
        hidden_size=4096,
        num_hidden_layers=10,
        intermediate_size=16384,
    )
    assert size > 12_000 * MB
    source, target = tmp_path / "source", tmp_path / "out"
    assert len(list(source.glob("*.safetensors"))) == 3
    limits = {"seconds": 1800, "address_space": 1000 * MB}
    done = run_limited(["zoo", "convert", source, "-o", target, *options], **limits)  # type: ignore[arg-type]
    small = done.returncode == 0 and done.peak_bytes < 500 * MB
    measured = f"peak {done.peak_bytes / MB:.0f} MB {' '.join(options)}".strip()
    record("large-conversion", cases=1, failures=int(not small), measured=measured)
    assert small, done.stderr
    shown = run_limited(["zoo", "info", target], **limits)  # type: ignore[arg-type]
    assert shown.returncode == 0 and shown.peak_bytes < 500 * MB, shown.stderr
    for path in target.glob("*.safetensors"):
        path.unlink()
