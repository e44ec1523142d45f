"""Scores of a run: quality, size and speed of the student and its teachers."""

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from zoo.checkpoint import Checkpoint, Manifest, load_checkpoint
from zoo.checkpoint.digests import update_manifest
from zoo.distillation.scoring.evaluation import SIMILARITY, ModelQuality, evaluate, load_student
from zoo.distillation.scoring.speed import (
    BATCH_SIZE,
    default_backends,
    measure_speeds,
    shared_seq_len,
)
from zoo.distillation.setup import DistillSetup, distill_setup
from zoo.distillation.teachers.teacher import files_of_weights, weights_digest
from zoo.errors import VerificationError
from zoo.finetuning.setup import FineTuneSetup
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.paths import readable_name
from zoo.metrics.likelihood import LARGEST, perplexity
from zoo.nn.devices import resolve_device
from zoo.training.config.run_config import config_type
from zoo.training.config.schema import validate_config
from zoo.training.logging.report import write_report
from zoo.training.logging.run_history import RunHistory
from zoo.training.logging.scores import SCORES, ModelScore, ScoresRecord, read_scores, retained
from zoo.training.state.earlier_versions import read_run_settings
from zoo.training.state.location import (
    initial_directory,
    moved_locations,
    resume_command,
    with_locations,
)
from zoo.training.state.run_manifest import SETTINGS, read_manifest
from zoo.version import __version__

LOG = logging.getLogger("zoo")
MODEL = "model"
LONG_RUN = 600.0  # Seconds of training that justify the export of graphs to measure them.


def score_run(
    run: Path,
    *,
    device: str | None = None,
    backends: Sequence[str] = (),
    offline: bool = False,
    given: Mapping[str, Any] | None = None,
) -> ScoresRecord:
    """Score the final model of a run and its teachers."""
    # Scores are written to ``scores.json``, the report, and the manifest of the model. If model and
    # teachers have not changed since an earlier call, its scores are returned. ``backends`` are
    # those whose speed is measured: by default ``cpu``, ``cuda`` if available, and ``onnx`` after a
    # run of more than ten minutes. ``given`` has settings of data and teachers that have moved.
    values = read_run_settings(run)
    values = with_locations(values, moved_locations(values, given or {}))
    try:
        with initial_directory(run, read_manifest(run).working_directory) as place:
            record = read_manifest(place)
            config: Any = validate_config(
                values, config_type(record.kind, values), str(place / SETTINGS)
            )
            setup = distill_setup(
                config, offline=offline, check_contents=False, resumed=(place, record)
            )
            student = load_checkpoint(place / MODEL)
            scores = _earlier(place, setup, student)
            timed = set() if scores is None else {speed.backend for speed in scores.student.speed}
            if scores is None or not {*backends} <= timed:
                scores = _score(place, setup, student, device, backends)
            _write(place, scores)
    except KeyboardInterrupt:
        LOG.info("%s is trained; `%s` scores it", run, resume_command("distill", run))
        raise
    return scores


def _earlier(run: Path, setup: DistillSetup, student: Checkpoint) -> ScoresRecord | None:
    """Return the scores of an earlier call if the models have not changed."""
    scores = read_scores(run)
    if scores is None or scores.student.files != weights_digest(student):
        return None
    teachers = [weights_digest(teacher.checkpoint) for teacher in setup.objective.teachers]
    return scores if [score.files for score in scores.teachers] == teachers else None


def _score(
    run: Path,
    setup: DistillSetup,
    student: Checkpoint,
    device: str | None,
    backends: Sequence[str],
) -> ScoresRecord:
    LOG.info("scoring the student and its teacher")
    place = resolve_device("auto", device)
    student_quality, teacher_qualities, rows = evaluate(setup, load_student(setup, run), place)
    checkpoints = [*(teacher.checkpoint for teacher in setup.objective.teachers), student]
    graphs = RunHistory.read(run).seconds > LONG_RUN
    speeds = measure_speeds(checkpoints, backends or default_backends(graphs=graphs))
    references = [*setup.config.distillation.teachers, readable_name(run / MODEL)]
    qualities = [*teacher_qualities, student_quality]
    models = []
    for number, checkpoint in enumerate(checkpoints):
        model = _model_score(setup, references[number], checkpoint, qualities[number])
        model.speed = speeds[number]
        models.append(model)
    if isinstance(setup.base, FineTuneSetup):
        data = f"evaluation data of {setup.base.config.task}"
    else:
        data = f"held-out text, {setup.objective.base.name}"
    scores = ScoresRecord(
        zoo=__version__,
        data=data,
        rows=rows,
        student=models[-1],
        teachers=models[:-1],
        seq_len=shared_seq_len(checkpoints),
        batch_size=BATCH_SIZE,
        threads=torch.get_num_threads(),
    )
    if not setup.objective.needs_head:
        LOG.info("the recipe trains no head, so the quality of the student is not compared")
        scores.student.metrics = {}
        scores.student.agreement = None
        scores.student.kl = None
    _add_retention(scores, setup.objective.base.metric_for_best_model)
    return scores


def _add_retention(scores: ScoresRecord, metric: str) -> None:
    """Add how much of its first teacher's quality the student keeps, by the best model's metric."""
    if SIMILARITY in scores.student.metrics:
        metric = SIMILARITY
    teacher_value = scores.teachers[0].metrics.get(metric)
    student_value = scores.student.metrics.get(metric)
    if teacher_value is not None and student_value is not None:
        scores.metric = metric
        scores.retention = retained(metric, teacher_value, student_value)


def _model_score(
    setup: DistillSetup, reference: str, checkpoint: Checkpoint, result: ModelQuality | None
) -> ModelScore:
    """Return the scores of a model without its speed."""
    files = files_of_weights(checkpoint)
    weights = checkpoint.family.weights(checkpoint.config, checkpoint.head_name)
    score = ModelScore(
        reference=reference,
        files={name: digest.blake3 for name, digest in files.items()},
        parameters=sum(math.prod(entry.shape) for entry in weights.entries()),
        bytes=sum(digest.bytes for digest in files.values()),
    )
    if result is not None:
        score.metrics = result.metrics()
        single_loss = len(setup.objective.base.loss_weights) == 1
        is_text = not isinstance(setup.base, FineTuneSetup)
        if is_text and single_loss and score.metrics["loss"] < LARGEST:
            loss = score.metrics.pop("loss")
            score.metrics = {"loss": loss, "perplexity": perplexity(loss), **score.metrics}
        score.agreement = result.agreed / result.compared if result.compared else None
        score.kl = result.divergence / result.diverged if result.diverged else None
    return score


def _write(run: Path, scores: ScoresRecord) -> None:
    """Write the scores to the run, its report, and the manifest of its model."""
    command = resume_command("distill", run)
    remains = f"{run / MODEL} is complete; `{command}` scores it again, when there is room"
    with writing(run / SCORES, remains=remains):
        _write_files(run, scores)


def _write_files(run: Path, scores: ScoresRecord) -> None:
    atomic_write(run / SCORES, encode_json(scores))

    def change(manifest: Manifest) -> Manifest:
        training = {**(manifest.training or {}), "scores": msgspec.to_builtins(scores)}
        return msgspec.structs.replace(manifest, training=training)

    update_manifest(run / MODEL, change)
    write_report(run)


def require_retention(scores: ScoresRecord, least: float) -> None:
    """Check that a student keeps at least a fraction of its teacher's quality."""
    if scores.retention is None:
        raise VerificationError(
            f"it is unknown whether the student keeps {least:.1%} of its teacher's quality",
            "no metric of both is above 0; see the table",
        )
    if not scores.retention >= least:  # NaN is not enough, either.
        raise VerificationError(
            f"the student keeps {scores.retention:.1%} of its teacher's quality by "
            f"{scores.metric}, less than {least:.1%}",
            "train it longer, or give it more layers",
        )
