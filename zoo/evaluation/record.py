"""Results of evaluations in the manifest of the model's directory."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.checkpoint import MANIFEST, Manifest
from zoo.checkpoint.digests import update_manifest
from zoo.checkpoint.records import EvaluationRecord
from zoo.data.readers.documents import expand_paths
from zoo.evaluation.base import Result
from zoo.evaluation.selected_metrics import INTERVALS, SIGNATURES
from zoo.io.digests.files import hash_file
from zoo.io.paths import readable_name
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

LOG = logging.getLogger("zoo")


def is_recordable(reference: str, checkpoint: "Checkpoint") -> bool:
    """Return whether a reference is the directory of the checkpoint itself.

    A name in the store, the registry or the Hub refers to a conversion that others also use, and a
    directory in another layout was converted into a cache.
    """
    path = Path(reference).expanduser()
    return path.is_dir() and path.resolve() == checkpoint.path.resolve()


def evaluation_record(
    task: str,
    data: Sequence[Path],
    settings: Mapping[str, Any],
    session: "Session",
    result: Result,
) -> EvaluationRecord:
    """Return the record of an evaluation of a model on data, with its settings."""
    digests = {os.path.abspath(path): hash_file(path) for path in expand_paths(list(data))}
    common_folder = os.path.commonpath([os.path.dirname(name) for name in digests])
    relative_digests = {}
    for name, digest in digests.items():
        relative_name = os.path.relpath(name, common_folder)
        relative_digests[readable_name(relative_name)] = digest
    metrics = {}
    for name, value in result.metrics.items():
        if math.isfinite(value):
            metrics[name] = float(value)
    intervals = {}
    for name, ends in result.details.get(INTERVALS, {}).items():
        if all(map(math.isfinite, ends)):
            intervals[name] = ends
    return EvaluationRecord(
        task=task,
        data=relative_digests,
        settings=msgspec.to_builtins(dict(settings)),
        backend=session.backend,
        dtype=session.dtype,
        metrics=metrics,
        intervals=intervals,
        signatures=dict(result.details.get(SIGNATURES, {})),
        created_by=__version__,
    )


def record_evaluation(path: Path, record: EvaluationRecord) -> None:
    """Add a record to a model's manifest; it replaces the record of the same evaluation, if any.

    If the directory cannot be written, this logs a warning.
    """

    def change(manifest: Manifest) -> Manifest:
        evaluations = []
        for evaluation in manifest.evaluations:
            if not evaluation.is_repeated_by(record):
                evaluations.append(evaluation)
        evaluations.append(record)
        return msgspec.structs.replace(manifest, evaluations=evaluations)

    try:
        update_manifest(path, change)
    except OSError as error:
        LOG.warning("warning: the result is not recorded: %s: %s", path / MANIFEST, error.strerror)
