"""What a run leaves behind: checkpoints of the zoo, like those that a conversion writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

import zoo
from zoo.checkpoint import (
    CONFIG,
    LAYOUT,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    Manifest,
    ModelFile,
    encode,
)
from zoo.io.atomic import atomic_directory
from zoo.objectives.base import Network
from zoo.training.job import Job
from zoo.training.state import write_tensors


def write_result(
    path: Path, job: Job, network: Network, weights: Mapping[str, torch.Tensor], training: Any
) -> None:
    """Write one network as a checkpoint, replacing an earlier one.

    Args:
        path: the directory.
        job: the run's.
        network: what the weights are of.
        weights: by our names, tied ones once.
        training: data, seed, steps and metrics, for the manifest.

    Raises:
        UsageError: the directory cannot be written; nothing is left of the attempt.
    """
    from zoo.convert.write import digest

    record = job.corpus.record
    model = ModelFile(
        zoo=LAYOUT,
        family=job.family.name,
        head=network.head,
        config=msgspec.to_builtins(network.config),
        tokenizer=record.tokenizer,
    )
    with atomic_directory(path, force=True) as staging:
        write_tensors(staging / WEIGHTS, dict(weights))
        (staging / CONFIG).write_bytes(encode(model))
        (staging / TOKENIZER).write_bytes(job.corpus.tokenizer_json())
        manifest = Manifest(
            zoo=LAYOUT,
            created_by={"plm-zoo": zoo.__version__},
            files={file.name: digest(file) for file in sorted(staging.iterdir())},
            dtypes={"F32": len(weights)},
            training=training,
        )
        (staging / MANIFEST).write_bytes(encode(manifest))
