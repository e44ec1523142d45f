"""Setup of a distillation run: the setup of the student's run, and its teachers."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
import numpy as np
import torch
from torch import nn

from zoo.checkpoint import TOKENIZER, Checkpoint, load_text_tokenizer
from zoo.convert.on_first_use import resolve_checkpoint
from zoo.data.tokenizer import ExistingTokenizer
from zoo.distillation.discriminator import Discriminator
from zoo.distillation.initial_weights import copy_teacher_weights
from zoo.distillation.losses.bind import bind_terms
from zoo.distillation.losses.comparisons import Comparison, ModelShape
from zoo.distillation.objective import Distillation, PairedExample
from zoo.distillation.recipes import TEXT
from zoo.distillation.replacement import ModuleReplacing, require_replaceable, train_layers_alone
from zoo.distillation.sentences import SentenceError, TextAligner
from zoo.distillation.teachers.cached_teacher import CachedTeacher
from zoo.distillation.teachers.caching import CacheCallback, with_cache
from zoo.distillation.teachers.onnx_teacher import OnnxTeacher, require_onnx
from zoo.distillation.teachers.teacher import Teacher
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.finetune import setup as finetune
from zoo.finetune import task_type
from zoo.finetune.base import FineTuning
from zoo.finetune.model import text_tokenizer
from zoo.finetune.rows import TokenizedRows
from zoo.finetune.setup import FineTuneSetup, read_splits
from zoo.nn.devices import resolve_device
from zoo.objectives.base import Batch, Example, TrainingObjective
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.objectives.replaced_token_detection import ReplacedTokenDetection
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer_json import parse, read_checked
from zoo.training.base import RunSetup
from zoo.training.callbacks import Callback
from zoo.training.config.distill import DistillationConfig, DistillTaskConfig, DistillTextConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.entrypoints import pretrain_setup
from zoo.training.setup import TrainSetup
from zoo.training.state.pretrained import InitRecord
from zoo.training.state.run_manifest import RunManifest

LOG = logging.getLogger("zoo")
CAUSAL = "causal-lm"
OF_TOKENS = ("question-answering", CAUSAL, "seq2seq-lm")  # heads whose logits are of tokens


@dataclass(frozen=True, kw_only=True)
class DistillSetup(RunSetup):
    """The setup of the student's run with another objective, and the teachers.

    Attributes:
        base: setup of the student's run: pretraining, or fine-tuning.
        objective: the terms of the student's objective and of the recipe.
        announce: log what the user should know about weights.
    """

    command: ClassVar[str] = "distill"
    config: DistillTextConfig | DistillTaskConfig
    base: RunSetup
    objective: Distillation
    announce: bool

    @property
    def tokenizer(self) -> ExistingTokenizer | None:
        """See ``RunSetup``."""
        return self.base.tokenizer

    def train_dataloader(self, dist: DistContext, *, completed_steps: int = 0) -> BatchLoader:
        """See ``RunSetup``."""
        return self.base.train_dataloader(dist, completed_steps=completed_steps)

    def eval_batches(self, dist: DistContext) -> list[Batch]:
        """See ``RunSetup``."""
        return self.base.eval_batches(dist)

    def manifest_fields(self) -> dict[str, Any]:
        """See ``RunSetup``: with the digests of the teachers."""
        return {**self.base.manifest_fields(), "teachers": self._teachers()}

    def _teachers(self) -> list[dict[str, Any]]:
        return [
            {"reference": teacher.reference, "files": teacher.digest}
            for teacher in self.objective.teachers
        ]

    def require_same_data(self, run: Path, record: RunManifest) -> None:
        """See ``RunSetup``: nor may a teacher have changed."""
        self.base.require_same_data(run, record)
        for before, now in zip(record.teachers or [], self._teachers(), strict=True):
            if before["files"] != now["files"]:
                raise UsageError(
                    f"the teacher {now['reference']} is not the one that {run} began with",
                    "put it back as it was, or begin another run",
                )

    def training_record(self, run: Path, best: tuple[float, int] | None) -> dict[str, Any]:
        """See ``RunSetup``."""
        distillation = self.config.distillation
        return {
            **self.base.training_record(run, best),
            "recipe": distillation.recipe,
            "teachers": self._teachers(),
        }

    def run_files(self) -> dict[str, bytes]:
        """See ``RunSetup``."""
        return self.base.run_files()

    def load_pretrained(self, model: nn.Module) -> InitRecord:
        """See ``RunSetup``: the weights of a pretrained student."""
        return self.base.load_pretrained(model.student)  # type: ignore[arg-type]

    def prepare_model(self, model: nn.Module) -> None:
        """Copy weights of the teacher, and freeze modules."""
        student: Any = model.student
        self.base.prepare_model(student)
        distillation = self.config.distillation
        models = self.objective.models_to_save(model)
        main = models["model"].module
        if distillation.init_layers is not None:
            teacher = self.objective.teachers[0].initial_model()
            new = copy_teacher_weights(main, teacher, distillation.init_layers)
            self.objective.after_load(model, models, ("model",))
            if self.announce:
                _announce(distillation.teachers[0], new)
        freeze(main, distillation.freeze)
        for any_teacher in self.objective.teachers:
            any_teacher.open()
        if distillation.replacement is not None:
            require_replaceable(self.family, main, self.objective.teachers[0])
            train_layers_alone(model, main)

    def callbacks(self, run: Path) -> list[Callback]:
        """See ``RunSetup``."""
        from zoo.distillation.scoring.preflight import Preflight  # which imports this module

        caches = [teacher.cache for teacher in self._cached_teachers()]
        return [*self.base.callbacks(run), *map(CacheCallback, caches), Preflight(self)]

    def _cached_teachers(self) -> list[CachedTeacher]:
        return [t for t in self.objective.teachers if isinstance(t, CachedTeacher)]


def _announce(reference: str, new: Sequence[str]) -> None:
    modules = ", ".join(dict.fromkeys(name.rpartition(".")[0] for name in new))
    rest = f"; new weights: {modules}" if new else ", its head included"
    LOG.info("the student begins with weights of %s%s", reference, rest)


def freeze(model: nn.Module, names: Sequence[str]) -> None:
    """Exclude modules from training.

    Args:
        model: the student.
        names: names of modules, such as ``embeddings``.

    Raises:
        UsageError: there is no such module.
    """
    for name in names:
        try:
            module = model.get_submodule(name)
        except AttributeError:
            known = ", ".join(child for child, _ in model.named_children())
            raise UsageError(
                f"distillation.freeze: the student has no module {name!r}", f"it has {known}"
            ) from None
        module.requires_grad_(False)


def build_setup(
    config: DistillTextConfig | DistillTaskConfig,
    *,
    offline: bool = False,
    check_contents: bool = True,
    resumed: tuple[Path, RunManifest] | None = None,
) -> DistillSetup:
    """Return the setup of a run.

    Args:
        config: configuration of the run.
        offline: make no network connection.
        check_contents: verify the data's contents, and log what was found.
        resumed: directory and manifest of a run that is resumed.

    Raises:
        UsageError: settings are inconsistent, or student and teacher cannot be compared.
        SourceError, VerificationError: a file is missing or damaged.
    """
    options: dict[str, Any] = {
        "offline": offline,
        "check_contents": check_contents,
        "resumed": resumed,
    }
    checkpoints = [resolve_checkpoint(r, offline=offline) for r in config.distillation.teachers]
    base: RunSetup
    if isinstance(config, DistillTaskConfig):
        limits = [c.family.max_seq_len(c.config) or config.max_seq_len for c in checkpoints]
        longest = min(config.max_seq_len, *limits)
        config = msgspec.structs.replace(config, max_seq_len=longest)
        base = finetune.build_setup(config, **options)
    else:
        base = pretrain_setup(config, **options)
    objective = _objective(base, config.distillation, checkpoints)
    base = replace(base, collate_wrapper=objective.collate_examples)
    if isinstance(base, FineTuneSetup):
        base = _with_metric(_with_teacher_rows(base, objective), objective)
    return DistillSetup(
        config=base.config,  # type: ignore[arg-type]
        family=base.family,
        model_config=base.model_config,
        objective=objective,
        loggers=base.loggers,
        init=base.init,
        base=base,
        announce=check_contents and resumed is None,
    )


def _with_metric(base: FineTuneSetup, objective: Distillation) -> FineTuneSetup:
    """Return the setup with the metric that selects the best checkpoint: without a head, none."""
    changes: dict[str, Any] = {
        "metric_for_best_model": objective.metric_for_best_model,
        "greater_is_better": objective.greater_is_better,
    }
    return replace(base, config=msgspec.structs.replace(base.config, **changes))


def _objective(
    base: RunSetup, settings: DistillationConfig, checkpoints: Sequence[Checkpoint]
) -> Distillation:
    """Return the objective; the models' sizes decide which terms apply."""
    task, task_objective = isinstance(base, FineTuneSetup), base.objective
    shapes = [model_shape(c.family, c.config, task_objective, task=task) for c in checkpoints]
    student = model_shape(base.family, base.model_config, task_objective, task=task)
    comparisons = bind_terms(settings.terms, task_objective, student, shapes)
    needs_head = settings.replacement is not None or any(
        comparison.needs_head for comparison in comparisons
    )
    teachers = []
    for reference, checkpoint in zip(settings.teachers, checkpoints, strict=True):
        if needs_head:
            require_head(reference, checkpoint, base)
        objective: TrainingObjective = base.objective
        if isinstance(base, FineTuneSetup):
            objective = _teacher_task(base, checkpoint)
        elif settings.align == TEXT:
            require_texts_alone(reference, comparisons, base.objective)
        else:
            _require_same_tokens(reference, checkpoint, base)
        if isinstance(objective, ReplacedTokenDetection):
            objective = Discriminator(objective)
        kind, device = _backend(reference, checkpoint, objective, comparisons, settings)
        dtype = getattr(torch, settings.teacher_dtype)
        teachers.append(kind(reference, checkpoint, objective, dtype, needs_head, device))
    if settings.cache_teacher is not None:
        teachers = with_cache(teachers, comparisons, base, settings)
    parts = (base.objective, settings.objective_weight, comparisons, teachers)
    if settings.replacement is None:
        aligner = text_aligner(base, checkpoints) if settings.align == TEXT else None
        return Distillation(*parts, aligner=aligner)
    return ModuleReplacing(*parts, replacement=settings.replacement, seed=base.config.seed)


def require_texts_alone(
    reference: str, comparisons: Sequence[Comparison], objective: TrainingObjective
) -> None:
    """Check that all terms compare whole texts.

    Raises:
        UsageError: one compares tokens, or the student's rows are no plain text.
    """
    for comparison in comparisons:
        if not isinstance(comparison, SentenceError):
            raise UsageError(
                f"the term {comparison.name} compares {comparison.term.kind} of tokens, and "
                f"--align text has no common tokens with {reference}",
                "terms of the kind sentence-mse compare texts, as the recipe text does",
            )
    if not isinstance(objective, MaskedLanguageModelling) and objective.name != CAUSAL:
        raise UsageError(
            f"--align text reads the rows of masked-lm and {CAUSAL}, not of {objective.name}",
            "choose another --objective",
        )


def text_aligner(base: RunSetup, checkpoints: Sequence[Checkpoint]) -> TextAligner:
    """Return what makes the texts of the student the tokens of its teacher.

    Raises:
        UsageError: there are several teachers, or the run is not on text.
    """
    if len(checkpoints) > 1 or not isinstance(base, TrainSetup):
        raise UsageError(
            "--align text is for one teacher, and for runs on text",
            "labelled data is read with each model's tokens anyway",
        )
    (teacher,), vocabulary = checkpoints, base.objective.vocabulary
    return TextAligner(
        TextTokenizer(vocabulary.tokenizer, vocabulary.info),
        load_text_tokenizer(teacher),
        teacher.family.max_seq_len(teacher.config),
    )


def _backend(
    reference: str,
    checkpoint: Checkpoint,
    objective: TrainingObjective,
    comparisons: Sequence[Comparison],
    settings: DistillationConfig,
) -> tuple[type[Teacher], torch.device | None]:
    """Return the class of a teacher, and its device; ``None`` for that of the student.

    Raises:
        UsageError: the teacher does not run on the backend of the settings.
    """
    backend = settings.teacher_backend
    if backend == "onnx":
        require_onnx(reference, checkpoint, objective, comparisons, settings.teacher_dtype)
        return OnnxTeacher, None
    if checkpoint.is_export:
        raise UsageError(
            f"the teacher {reference} is an ONNX graph", "--teacher-backend onnx runs it"
        )
    return Teacher, None if backend == "auto" else torch.device(resolve_device(backend, None).type)


def model_shape(
    family: Family, config: Any, objective: TrainingObjective, *, task: bool
) -> ModelShape:
    """Return the sizes of a model that terms depend on.

    Args:
        family: family of the model.
        config: its configuration.
        objective: objective of the student.
        task: whether the run is on labelled data.
    """
    classes = len(config.labels) if task and family.heads()[objective.head].has_labels else 0
    return ModelShape(
        layers=getattr(config, "num_layers", 0),
        hidden_size=getattr(config, "hidden_size", 0),
        heads=getattr(config, "num_heads", 0),
        classes=classes,
        causal=CAUSAL in family.heads(),
    )


def require_head(reference: str, checkpoint: Checkpoint, base: RunSetup) -> None:
    """Check that a teacher has the head whose logits are compared.

    Args:
        reference: reference to the teacher, for messages.
        checkpoint: its checkpoint.
        base: setup of the student's run.

    Raises:
        UsageError: it has another, or other labels.
    """
    head = base.objective.head
    if isinstance(base, FineTuneSetup):
        head = task_type(base.config.task).head_in(checkpoint.family)
    fits = checkpoint.head_name == head or (
        not isinstance(base, FineTuneSetup) and _predicts(checkpoint, head)
    )
    if not fits:
        raise UsageError(
            f"the teacher {reference} has the head {checkpoint.head_name}, and "
            f"{base.objective.name} compares outputs of {head}",
            "`zoo finetune` trains it first"
            if isinstance(base, FineTuneSetup)
            else "a recipe of hidden states or attention, such as minilmv2, needs no head",
        )
    labels = base.objective.labels if isinstance(base.objective, FineTuning) else ()
    if labels and checkpoint.config.labels != labels:
        raise UsageError(
            f"the teacher {reference} has the labels {', '.join(checkpoint.config.labels[:4])}, "
            f"and the data has {', '.join(labels[:4])}",
            "--set data.labels=[...] gives their order",
        )


def _predicts(checkpoint: Checkpoint, head: str) -> bool:
    """Return whether a checkpoint's head has the outputs of another, among further ones."""
    heads = checkpoint.family.heads()
    if head not in heads or checkpoint.head_name not in heads:
        return False
    return set(heads[head].outputs) <= set(heads[checkpoint.head_name].outputs)


def vocabulary_of(checkpoint: Checkpoint) -> dict[str, int]:
    """Return token -> id of what a checkpoint predicts, also if it reads characters."""
    built_in = checkpoint.family.text_tokenizer(checkpoint.config) is not None
    file = checkpoint.path / TOKENIZER
    if built_in and file.is_file():
        ids: dict[str, int] = parse(read_checked(file), file).get_vocab()
        return ids
    return load_text_tokenizer(checkpoint).vocabulary()


def _require_same_tokens(reference: str, checkpoint: Checkpoint, base: RunSetup) -> None:
    """Check that a teacher has the tokens of the corpus.

    Raises:
        UsageError: it has other tokens, or none.
    """
    assert isinstance(base, TrainSetup), "the other kind reads texts with each model's tokenizer"
    teacher = vocabulary_of(checkpoint)
    student = base.objective.vocabulary.tokenizer.get_vocab()
    names = teacher.keys() | student.keys()
    odd = min((name for name in names if teacher.get(name) != student.get(name)), default=None)
    if odd is not None:
        raise UsageError(
            f"student and teacher have other tokens: {odd!r} is {student.get(odd, 'no token')} of "
            f"the student and {teacher.get(odd, 'no token')} of {reference}",
            f"--align text compares texts; or --set data.tokenizer={reference}",
        )


def _teacher_task(base: FineTuneSetup, checkpoint: Checkpoint) -> TrainingObjective:
    """Return the task with the teacher's inputs and padding."""
    family, config = checkpoint.family, checkpoint.config
    task = task_type(base.config.task)
    inputs = tuple(family.onnx(config, checkpoint.head_name).inputs)
    pad_id = load_text_tokenizer(checkpoint).pad_id
    return task(replace_labels(config, base.model_config), inputs, pad_id, base.config)


def replace_labels(config: Any, student: Any) -> Any:
    """Return a teacher's configuration with the labels of the student's data."""
    return msgspec.structs.replace(config, labels=student.labels)


@dataclass(frozen=True)
class PairedRows(TokenizedRows):
    """The samples as the student and its teachers read them.

    Attributes:
        teacher: the rows of the teachers.
    """

    teacher: TokenizedRows | None = None

    def example(self, index: int, rng: np.random.Generator) -> Example:
        """See ``ExampleDataset``."""
        assert self.teacher is not None, "_pair sets it"
        row, other = super().example(index, rng), self.teacher.example(index, rng)
        return PairedExample(row.arrays, row.values, row.positions, row.counts, teacher=other)


def _with_teacher_rows(base: FineTuneSetup, objective: Distillation) -> FineTuneSetup:
    """Return the setup with the teachers' rows, where they read other tensors than the student.

    Raises:
        UsageError: teachers read different tokens, rows do not correspond, or states of different
            tokens would be compared.
    """
    if not objective.comparisons:
        return base
    checkpoints = [teacher.checkpoint for teacher in objective.teachers]
    encoders = [load_text_tokenizer(checkpoint) for checkpoint in checkpoints]
    student = text_tokenizer(base.family, base.model_config, base.run_tokenizer)
    inputs = [cast(FineTuning, teacher.objective).inputs for teacher in objective.teachers]
    if all(student.makes_same_ids(encoder) for encoder in encoders) and all(
        names == base.objective.inputs for names in inputs
    ):
        return base
    if any(not encoders[0].makes_same_ids(encoder) for encoder in encoders[1:]) or any(
        names != inputs[0] for names in inputs[1:]
    ):
        raise UsageError("teachers read different tokens", "give teachers with one tokenizer")
    task = cast(FineTuning, objective.teachers[0].objective)
    splits = read_splits(task_type(base.config.task), base.config, announce=False)
    rows = [task.rows(samples, encoders[0]) for samples in splits]
    aligned = objective.head not in OF_TOKENS and all(c.needs_head for c in objective.comparisons)
    pairs = zip((base.train_rows, base.eval_rows), rows, strict=True)
    train, evaluation = (_pair(first, second, aligned=aligned) for first, second in pairs)
    return replace(base, train_rows=train, eval_rows=evaluation)


def _pair(student: TokenizedRows, teacher: TokenizedRows, *, aligned: bool) -> PairedRows:
    """Return rows of both; ``aligned`` if nothing of single tokens is compared."""
    if len(student) != len(teacher) or any(
        not np.array_equal(counts, teacher.counts[term]) for term, counts in student.counts.items()
    ):
        raise UsageError(
            "student and teacher split the samples into different rows",
            "distil into a student with the teacher's tokenizer, or raise max_seq_len",
        )
    ids = [next(iter(rows.arrays.values())) for rows in (student, teacher)]
    if not aligned and not np.array_equal(ids[0], ids[1]):
        raise UsageError(
            "student and teacher read different tokens, which cannot be compared",
            "logits of whole texts, by terms such as kl, are compared between any models",
        )
    fields = {field.name: getattr(student, field.name) for field in dataclass_fields(TokenizedRows)}
    return PairedRows(**fields, teacher=teacher)
