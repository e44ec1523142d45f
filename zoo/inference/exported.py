"""Files of an ONNX export: their record in the manifest, and checks of their digests."""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from zoo.checkpoint import DATA, GRAPH, MANIFEST, Checkpoint
from zoo.errors import VerificationError
from zoo.inference.graph_scan import scan_graph
from zoo.io.digests.verified import require_blake3
from zoo.io.paths import safe_join


class QuantizedInfo(msgspec.Struct, frozen=True):
    """Fields of the record of quantized graphs that sessions need."""

    graphs: dict[str, Any]  # file -> description, in the order in which they run
    min_onnxruntime: str | None = None  # oldest release of ONNX Runtime that runs them


class ExportInfo(msgspec.Struct, frozen=True):
    """Fields of the record of an export that sessions need."""

    validated: bool = False  # whether the graphs passed the export gate
    dtype: Literal["float32", "float16"] = "float32"  # dtype of the computation
    cache: bool = False  # whether the graphs have a key-value cache
    # file -> description, in the order in which they run
    graphs: dict[str, Any] = msgspec.field(default_factory=lambda: {GRAPH: None})
    min_onnxruntime: str | None = None  # oldest release of ONNX Runtime that runs the graphs
    # dtype -> quantized copies of the graphs
    quantized: dict[Literal["int8", "int4"], QuantizedInfo] = msgspec.field(default_factory=dict)

    @property
    def dtypes(self) -> dict[str, list[str]]:
        """Dtype -> files of the graphs in it; the first is the default."""
        files: dict[str, list[str]] = {}
        if self.graphs:
            files[self.dtype] = list(self.graphs)
        for dtype, info in self.quantized.items():
            files[dtype] = list(info.graphs)
        return files

    def remedy(self, dtype: str, installed: str) -> str:
        """Return the remedy for a release of ONNX Runtime that is too old; empty for others."""
        required_version = self.min_onnxruntime
        for quantized_dtype, info in self.quantized.items():
            if quantized_dtype == dtype:
                required_version = info.min_onnxruntime
        if required_version is None or _release(required_version) <= _release(installed):
            return ""
        return f"install onnxruntime {required_version} or newer"


def _release(version: str) -> list[int]:
    """Return the first two numbers of a version."""
    return [int(number) for number in re.findall(r"\d{1,9}", version)[:2]]


def read_export_info(checkpoint: Checkpoint) -> ExportInfo:
    """Return the record of an export from the manifest."""
    info = checkpoint.read_part("export", ExportInfo)
    if not info.dtypes:
        raise VerificationError(
            f"{checkpoint.path / MANIFEST}: export: no graph is listed", "export it again"
        )
    most_graphs = 2 if info.cache else 1
    for graphs in info.dtypes.values():
        if not 1 <= len(graphs) <= most_graphs:
            raise VerificationError(
                f"{checkpoint.path / MANIFEST}: export: graphs: {len(graphs)} are listed",
                "export it again",
            )
    return info


def check_files(checkpoint: Checkpoint, dtype: str | None = None) -> int:
    """Compare graphs and their external data with the digests of the manifest."""
    dtypes = read_export_info(checkpoint).dtypes
    graphs: list[str] = []
    for name, files in dtypes.items():
        if dtype in (None, name):
            graphs += files
    names: set[str] = set()
    if dtype is None:
        names |= {name for name in checkpoint.manifest.files if name.endswith(DATA)}
    for graph in graphs:
        names.add(graph)
        path = check_file(checkpoint, graph)
        folder = Path(graph).parent
        for location in scan_graph(path):
            safe_join(path.parent, location, str(path))
            names.add(str(folder / location))
    for name in sorted(names):
        check_file(checkpoint, name)
    return len(names)


def check_file(checkpoint: Checkpoint, name: str) -> Path:
    """Compare a file of an export with its digest in the manifest, and return its path."""
    manifest = checkpoint.path / MANIFEST
    path = safe_join(checkpoint.path, name, str(manifest))
    recorded_digest = checkpoint.manifest.files.get(name)
    if not path.is_file():
        raise VerificationError(
            f"{path} is not the file that {manifest} describes: it is missing", "export it again"
        )
    blake3 = None if recorded_digest is None else recorded_digest.blake3
    require_blake3(path, blake3, manifest)
    return path
