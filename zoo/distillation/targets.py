"""Sequence-level distillation: the student's targets are texts that the teacher generates."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.errors import UsageError
from zoo.families.distillation import Targets
from zoo.finetuning.setup import SplitProblems, read_splits
from zoo.inference import load_session
from zoo.inference.processing.records import as_records
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct, encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.plugins.tasks import training_task
from zoo.tasks import make_task
from zoo.tasks.causal_lm.data import Completion
from zoo.tasks.seq2seq.data import TextToText
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import ConfigDict

LOG = logging.getLogger("zoo")
FOLDER = "targets"
TRAIN = "train.jsonl"
EVAL = "eval.jsonl"
RECORD = "targets.json"
TASKS = {"seq2seq": "seq2seq", "causal-lm": "generate"}  # task of fine-tuning -> of inference
SOURCE = "source"
TARGET = "target"


class TargetsRecord(JsonStruct):
    """``targets.json``: how the targets were generated."""

    teacher: str  # reference
    weights: dict[str, str]  # digests of the teacher's files
    generation: dict[str, Any]  # settings of generation
    files: dict[str, FileDigest]
    empty: int  # number of sources without a target, which are left out
    skipped: int = 0  # number of rows that could not be used


def targets_data(path: Path) -> ConfigDict:
    """Return the settings of data for targets in the directory of a run."""
    files = {"train": TRAIN, "eval": EVAL}
    named = {split: [str(path / FOLDER / name)] for split, name in files.items()}
    return {**named, "text": SOURCE, "label": TARGET}


def write_targets(
    path: Path,
    config: FineTuneConfig,
    teacher: tuple[str, Checkpoint],
    settings: Targets,
    device: str,
) -> None:
    """Generate the targets of the training data, unless the directory has them."""
    # The student is trained on the best hypothesis of the teacher's beam search (Kim and Rush 2016,
    # "Sequence-Level Knowledge Distillation", arXiv:1606.07947, section 3.2). Since targets are
    # texts, student and teacher need not share a vocabulary.
    #
    # Evaluation data keeps its targets. Several data sets become one.
    if (path / FOLDER).is_dir():
        return
    reference, checkpoint = teacher
    task = require_generation(config)
    with SplitProblems(skip=config.data.skip_invalid) as problems:
        samples, held_out = read_splits(
            training_task(config.task).data, config, problems, announce=True
        )
    problems.announce()
    sources = [source_of(sample) for sample in samples]
    LOG.info("generating %s targets by %s", f"{len(sources):,}", reference)
    options = msgspec.to_builtins(settings)
    session = load_session(checkpoint, "cuda" if device.startswith("cuda") else "cpu")
    tokenizer = load_text_tokenizer(checkpoint)
    generation = make_task(
        task, checkpoint, session, tokenizer=tokenizer, do_sample=False, **options
    )
    targets = [result["generated"] for result in generation.run(as_records(sources))]
    full = [pair for pair in zip(sources, targets, strict=True) if pair[1].strip()]
    if not full:
        raise UsageError(f"the teacher {reference} generates no text", "give a trained teacher")
    contents = {
        TRAIN: _json_lines(full),
        EVAL: _json_lines((source_of(sample), target_of(sample)) for sample in held_out),
    }
    record = TargetsRecord(
        teacher=reference,
        weights={name: file.blake3 for name, file in checkpoint.manifest.files.items()},
        generation=options,
        files={
            name: FileDigest(bytes=len(content), blake3=blake3(content).hexdigest())
            for name, content in contents.items()
        },
        empty=len(sources) - len(full),
        skipped=sum(problems.counts.values()),
    )
    with atomic_directory(path / FOLDER) as staging:
        for name, content in {**contents, RECORD: encode_json(record)}.items():
            (staging / name).write_bytes(content)


def require_generation(config: FineTuneConfig) -> str:
    """Return the task of inference that generates targets for a task of fine-tuning."""
    if config.task not in TASKS or (config.task == "causal-lm" and config.data.label is None):
        raise UsageError(
            f"{config.task} has no target texts that a teacher could write",
            "--task seq2seq, or --task causal-lm with prompts and --label for their completions",
        )
    return TASKS[config.task]


def source_of(sample: Any) -> str:
    """Return the text for which a target is generated."""
    if isinstance(sample, TextToText):
        return sample.source
    assert isinstance(sample, Completion), "the task reads one of the two"
    return sample.prompt or ""


def target_of(sample: Any) -> str:
    """Return the target that the data has."""
    return str(sample.target if isinstance(sample, TextToText) else sample.text)


def _json_lines(pairs: Iterable[tuple[str, str]]) -> bytes:
    rows = [{SOURCE: source, TARGET: target} for source, target in pairs]
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
