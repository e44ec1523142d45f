"""Static students: a vector for each token, which a recipe extracts from the teacher."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.checkpoint.digests import update_manifest
from zoo.exporting.targets.static.export import distil
from zoo.families.distillation import Extraction
from zoo.inference.torch_session import TorchSession
from zoo.io.output.atomic import atomic_directory
from zoo.io.scratch import scratch_directory
from zoo.sentence_models.modules import NormalizeModule
from zoo.sentence_models.numpy_modules import pool
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from zoo.exporting.targets.static.vectors import Pool

LOG = logging.getLogger("zoo")
FOLDER = "static"  # The student's folder in the directory of a run.


def write_static_student(
    path: Path,
    teacher: tuple[str, Checkpoint],
    extraction: Extraction,
    fields: Mapping[str, Any],
    device: str,
) -> None:
    """Extract a student from its teacher, unless the directory has it.

    Args:
        path: directory of the run.
        teacher: reference and checkpoint.
        extraction: settings of the recipe.
        fields: fields of the student's configuration that are given; ``hidden_size`` is the number
            of principal components.
        device: device of the teacher.
    """
    if (path / FOLDER).is_dir():
        return
    reference, checkpoint = teacher
    LOG.info("extracting vectors of tokens from %s", reference)
    session = TorchSession(checkpoint, dtype="float32", device=device)
    with scratch_directory() as scratch:
        student = distil(
            checkpoint,
            session,
            scratch,
            "float32",
            dim=fields.get("hidden_size"),
            sif_coefficient=extraction.sif_coefficient,
            pool=pool_of(checkpoint),
        )
        update_manifest(student.path, lambda _: student.manifest)
        with atomic_directory(path / FOLDER) as staging:
            shutil.copytree(student.path, staging, dirs_exist_ok=True)


def pool_of(checkpoint: Checkpoint) -> "Pool":
    """Return the modules of a sentence encoder without its last normalization."""
    pooling = checkpoint.model.pooling or Pooling()
    steps = list(pooling.steps)
    while isinstance(steps[-1], NormalizeModule):  # Lengths tell how much a token matters.
        steps.pop()
    pooling = msgspec.structs.replace(pooling, modules=tuple(steps), truncate_dim=None)
    weights = checkpoint.module_weights() if checkpoint.model.pooling else {}
    return lambda hidden: pool(hidden, np.ones(hidden.shape[:2], np.bool_), pooling, weights)
