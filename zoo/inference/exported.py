"""The files of an export: what the manifest says of its graphs, and whether they are as written."""

from pathlib import Path
from typing import Any

import msgspec

from zoo.checkpoint import DATA, GRAPH, MANIFEST, Checkpoint
from zoo.errors import VerificationError
from zoo.inference.graph_scan import scan_graph
from zoo.io.digests.verified import require_blake3
from zoo.io.paths import safe_join


class ExportInfo(msgspec.Struct, frozen=True):
    """The part of an export's record that running its graphs depends on.

    Attributes:
        validated: whether the graphs passed the gate.
        dtype: dtype that they compute in.
        cache: whether they take and return keys and values.
        graphs: file -> description, in the order they are run.
    """

    validated: bool = False
    dtype: str = "float32"
    cache: bool = False
    graphs: dict[str, Any] = msgspec.field(default_factory=lambda: {GRAPH: None})


def read_export_info(checkpoint: Checkpoint) -> ExportInfo:
    """Return what the manifest says of the graphs of a checkpoint.

    Raises:
        VerificationError: a value is of another type, or the number of graphs does not fit.
    """
    manifest = checkpoint.path / MANIFEST
    try:
        facts = msgspec.convert(checkpoint.manifest.export or {}, ExportInfo)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{manifest}: export: {error}", "export it again") from error
    if not 1 <= len(facts.graphs) <= (2 if facts.cache else 1):
        raise VerificationError(
            f"{manifest}: export: graphs: {len(facts.graphs)} are listed", "export it again"
        )
    return facts


def check_files(checkpoint: Checkpoint) -> int:
    """Compare the graphs, and all files that they refer to, with the manifest.

    Returns:
        the number of files.

    Raises:
        SourceError: one is missing.
        VerificationError: one was changed, belongs to another export, is not in the manifest or
            lies outside of the directory; or a graph has what no graph of zoo has.
    """
    names: set[str] = {name for name in checkpoint.manifest.files if name.endswith(DATA)}
    for graph in read_export_info(checkpoint).graphs:
        names.add(graph)
        path = _compared(checkpoint, graph)
        folder = Path(graph).parent
        for location in scan_graph(path):
            safe_join(path.parent, location, str(path))
            names.add(str(folder / location))
    for name in sorted(names):
        _compared(checkpoint, name)
    return len(names)


def _compared(checkpoint: Checkpoint, name: str) -> Path:
    manifest = checkpoint.path / MANIFEST
    path = safe_join(checkpoint.path, name, str(manifest))
    known = checkpoint.manifest.files.get(name)
    if not path.is_file():
        raise VerificationError(
            f"{path} is not the file that {manifest} describes: it is missing", "export it again"
        )
    require_blake3(path, known.blake3 if known else None, manifest)
    return path
