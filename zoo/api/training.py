"""``zoo.pretrain``, ``zoo.finetune`` and ``zoo.distill``."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.api.arguments import AnyPath, AnyPaths, as_path, as_reference, checked
from zoo.api.settings import (
    FINETUNE_SETTINGS,
    PRETRAIN_SETTINGS,
    check_places,
    check_settings,
    collect_settings,
    config_file,
    distill_settings,
    distill_values,
    duration,
    finetune_values,
    pretrain_values,
    task_settings,
)
from zoo.errors import UsageError, did_you_mean, first_names
from zoo.io.paths import as_paths
from zoo.io.progress import enable_progress

if TYPE_CHECKING:
    from zoo.distillation.runs import DistillRun
    from zoo.finetuning.from_scratch import Comparison
    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.distributed.context import DistContext
    from zoo.training.logging.scores import ScoresRecord
    from zoo.training.run import Run

Alignment = Literal["tokens", "text"]
TeacherBackend = Literal["auto", "cpu", "cuda", "onnx"]
ScoreBackend = Literal["cpu", "cuda", "onnx"]
Settings = Mapping[str, Any]
DEFAULT_TIMEOUT = 600.0  # seconds that several processes wait for each other


@dataclass(frozen=True)
class Training:
    """Result of ``zoo.pretrain``, ``zoo.finetune`` and ``zoo.distill``.

    Attributes:
        paths: name -> directory or file, as the command prints them.
        runs: directories of the runs over several seeds, or of a pretrained model and one from
            scratch; empty of a single run.
        scores: scores of a student and its teachers; ``None`` if they were not measured.
        seed_scores: directory of a run -> its scores, of a distillation over several seeds.
        spreads: score -> median, lowest and highest value over the seeds.
        plan: name -> what would be trained, of a dry run; then there are no paths.
        teacher_shard: name -> what was computed of a teacher's outputs, with ``shard``; then there
            is no run.
    """

    paths: Mapping[str, Path]
    runs: tuple[Path, ...] = ()
    scores: "ScoresRecord | None" = None
    seed_scores: "Mapping[str, ScoresRecord]" = field(default_factory=dict)
    spreads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    plan: Mapping[str, str] = field(default_factory=dict)
    teacher_shard: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        """Directory of the run, or of the runs over several seeds.

        Raises:
            UsageError: this is the plan of a dry run, or a shard of a teacher's outputs.
        """
        if self.plan:
            raise UsageError("a dry run trains nothing", "leave dry_run out")
        if self.teacher_shard:
            raise UsageError("a shard of the teacher's outputs trains nothing", "leave shard out")
        return self.paths["runs" if self.runs else "run"]

    @property
    def model(self) -> Path:
        """Directory of the final model, for ``zoo.load``; of several seeds, of the median run.

        Raises:
            UsageError: runs of pretraining over several seeds have no median.
        """
        return self._path("model", "each of `runs` has a model")

    @property
    def report(self) -> Path:
        """The report of a single run or of ``from_scratch``, an HTML file.

        Raises:
            UsageError: there are runs over several seeds.
        """
        return self._path("report", "each of `runs` has a report")

    def _path(self, name: str, hint: str) -> Path:
        if name not in self.paths:
            raise UsageError(f"{self.run} has no {name} of its own", hint)
        return self.paths[name]

    def _repr_html_(self) -> str:
        """Return the report of the run, or paths and scores of several runs, for notebooks."""
        from zoo.report.cells import fields_cell, page_cell

        if self.plan:
            return fields_cell("plan", self.plan)
        if self.teacher_shard:
            return fields_cell("teacher's outputs", self.teacher_shard)
        if "report" in self.paths and self.report.is_file():
            return page_cell(f"run {self.run}", self.report.read_text("utf-8"))
        fields: dict[str, object] = dict(self.paths)
        for name, spread in self.spreads.items():
            fields[f"{name}, median"] = spread["median"]
        return fields_cell("", fields)

    def to_dict(self) -> dict[str, Any]:
        """Return what the command prints with ``--json``."""
        import msgspec

        if self.plan:
            return {"plan": dict(self.plan)}
        if self.teacher_shard:
            return {"teacher_shard": dict(self.teacher_shard)}
        values: dict[str, Any] = {name: str(path) for name, path in self.paths.items()}
        if self.scores is not None:
            values["scores"] = msgspec.to_builtins(self.scores)
        elif self.seed_scores:
            values["scores"] = msgspec.to_builtins(dict(self.seed_scores))
        return values

    def require_retention(self, least: float) -> None:
        """Check that a student keeps a fraction of its teacher's quality; the median of seeds.

        Raises:
            VerificationError: it keeps less, or this was not measured.
        """
        from zoo.distillation.scoring.score import require_retention

        if self.scores is not None:
            require_retention(self.scores, least)
        elif self.seed_scores:
            ranking = sorted(self.seed_scores.values(), key=lambda score: score.retention or 0)
            require_retention(ranking[(len(ranking) - 1) // 2], least)


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that are not settings."""

    seeds: int | None
    resume: Path | None
    auto_resume: bool
    continue_from: Path | None
    reset_optimizer: bool
    device: str | None
    threads: int | None
    offline: bool
    output: Path | None
    force: bool
    max_time: float | None
    dry_run: bool
    timeout: float
    workers: int | None = None  # Processes that tokenize a stream.

    @property
    def resumes_output(self) -> bool:
        """Whether ``output`` is resumed, since it exists."""
        return self.auto_resume and self.output is not None and self.output.exists()

    def build_run(
        self,
        run_class: "type[Run]",
        values: Settings,
        dist: "DistContext",
        overrides: Settings,
        file: Path | None,
    ) -> "Run":
        """Return a run with these options; it has not started.

        Args:
            run_class: what is trained on what.
            values: settings of a file, or only the model.
            dist: the processes.
            overrides: settings that override them.
            file: the file, for messages.
        """
        return run_class(
            values,
            dist,
            overrides=overrides,
            output=self.output,
            offline=self.offline,
            force=self.force,
            max_time=self.max_time,
            workers=self.workers,
            file=file,
        )


def _run_options(
    *,
    seeds: int | None,
    resume: AnyPath | None,
    auto_resume: bool,
    continue_from: AnyPath | None,
    reset_optimizer: bool,
    device: str | None,
    threads: int | None,
    offline: bool,
    output: AnyPath | None,
    force: bool,
    max_time: str | float | None,
    dry_run: bool,
    timeout: str | float | None,
) -> RunOptions:
    return RunOptions(
        seeds,
        as_path(resume, "file"),
        auto_resume,
        as_path(continue_from, "file"),
        reset_optimizer,
        device,
        threads,
        offline,
        as_path(output, "output"),
        force,
        duration(max_time),
        dry_run,
        DEFAULT_TIMEOUT if timeout is None else duration(timeout) or DEFAULT_TIMEOUT,
    )


@checked
def pretrain(
    family_or_file: AnyPath | None = None,
    *,
    size: str | None = None,
    objective: str | None = None,
    init_from: AnyPath | None = None,
    adapter: str | None = None,
    train: AnyPaths = (),
    eval: AnyPaths = (),
    weight: Mapping[str, float] | Sequence[str] = (),
    text: str | None = None,
    streaming: bool | None = None,
    tokenizer: AnyPath | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    global_batch_tokens: int | None = None,
    learning_rate: float | None = None,
    max_steps: int | None = None,
    batch_size: int | None = None,
    max_seq_len: int | None = None,
    report_to: str | Sequence[str] = (),
    settings: Settings | None = None,
    seed: int | None = None,
    epochs: float | None = None,
    max_time: str | float | None = None,
    seeds: int | None = None,
    resume: AnyPath | None = None,
    auto_resume: bool = False,
    continue_from: AnyPath | None = None,
    reset_optimizer: bool = False,
    device: str | None = None,
    fsdp: bool | None = None,
    keep_optimizer: bool | None = None,
    threads: int | None = None,
    offline: bool = False,
    output: AnyPath | None = None,
    force: bool = False,
    dry_run: bool = False,
    timeout: str | float | None = None,
    workers: int | None = None,
) -> Training:
    """Pretrain a model on raw text; ``zoo pretrain`` does the same.

    An interrupted run resumes bit for bit.

    Args:
        family_or_file: family, or a YAML file of settings.
        size: model size, one of the family's.
        objective: objective of pretraining, such as ``masked-lm``; by default the family's.
        init_from: checkpoint to initialise the weights from.
        adapter: train an adapter of this method, and keep the model as it is.
        train: files or directories of text, or a built corpus; by default the corpus of the
            package. ``NAME=PATH`` is one of several sources.
        eval: held-out text; ``NAME=PATH`` is the text of a source.
        weight: source -> its share of the tokens, or texts ``NAME=SHARE``; all add up to 1.
        text: column of the text in a table, or its key in JSON lines.
        streaming: tokenize the training text on the way, without a corpus.
        tokenizer: model whose tokenizer is used, or ``train`` to train one.
        lowercase: whether a trained tokenizer lower-cases texts; by default it keeps their case.
        strip_accents: whether it removes accents; by default if it lower-cases.
        global_batch_tokens: number of tokens per optimizer step.
        learning_rate: highest learning rate, which the schedule multiplies.
        max_steps: number of optimizer steps.
        batch_size: number of rows per optimizer step.
        max_seq_len: largest number of tokens of a row.
        report_to: loggers: ``tensorboard``, ``wandb``, ``mlflow``, or plugins'.
        settings: further settings, nested or by names with dots, such as
            ``{"optimizer.max_grad_norm": 0.5}``; ``config.yaml`` of a run lists all.
        seed: random seed; by default 0.
        epochs: number of passes over the training data.
        max_time: time of training, in seconds or as ``90s``, ``3m`` or ``1h30m``.
        seeds: train this number of runs, with seeds from ``seed`` on.
        resume: directory of a run to resume.
        auto_resume: start the run ``output``, or resume it if it has begun with the same settings.
        continue_from: directory of a run; a new one begins with its last checkpoint.
        reset_optimizer: then, begin with a new state of the optimizer.
        device: device, such as ``cpu``; by default CUDA if available.
        fsdp: shard weights and optimizer state over processes.
        keep_optimizer: keep the optimizer's state at the end, for ``continue_from``.
        threads: number of CPU threads.
        offline: open no connection.
        output: directory of the run; by default a new one in ``runs``.
        force: move an earlier run in this directory to ``DIR.old-1``.
        dry_run: return the plan, and train nothing.
        timeout: time that several processes wait for each other, in seconds or as ``90s`` or
            ``10m``; by default 10 minutes.
        workers: number of processes that tokenize a stream, 0 for none; by default all cores.

    Returns:
        ``run``, ``model`` and ``report``, or ``runs`` over several seeds.

    Raises:
        UsageError: a setting or an argument is unknown or wrong, or the directory exists.
        SourceError: a model or file is missing.
        VerificationError: a file is damaged, or a loss is not finite.
        Interrupted: a signal came; ``resume`` continues.

    Example:
        >>> training = zoo.pretrain("family", train="books/", max_steps=1000)  # doctest: +SKIP
        >>> model = zoo.load(training.model)  # doctest: +SKIP
    """
    if family_or_file is None and not (init_from or resume or continue_from):
        raise UsageError(
            "no family is named",
            "name a family to pretrain, or give --init-from REF or --resume RUN",
        )
    run_options = _run_options(
        seeds=seeds,
        resume=resume,
        auto_resume=auto_resume,
        continue_from=continue_from,
        reset_optimizer=reset_optimizer,
        device=device,
        threads=threads,
        offline=offline,
        output=output,
        force=force,
        max_time=max_time,
        dry_run=dry_run,
        timeout=timeout,
    )
    run_options = replace(run_options, workers=workers)
    options = {
        "size": size,
        "objective": objective,
        "init_from": None if init_from is None else as_reference(init_from),
        "adapter": adapter,
        "train": tuple(as_paths(train)),
        "eval": tuple(as_paths(eval)),
        "weight": weight or (),
        "text": text,
        "streaming": streaming,
        "tokenizer": None if tokenizer is None else as_reference(tokenizer),
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "global_batch_tokens": global_batch_tokens,
        "learning_rate": learning_rate,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "max_seq_len": max_seq_len,
        "report_to": _as_tuple(report_to),
        "seed": seed,
        "epochs": epochs,
        "fsdp": fsdp,
        "keep_optimizer": keep_optimizer,
    }
    subject = None if family_or_file is None else as_reference(family_or_file)
    _check_places("pretrain", options, run_options)
    values = pretrain_values(subject)
    overrides = collect_settings(PRETRAIN_SETTINGS, options, settings)
    file = config_file(subject)
    check_settings("pretrain", values, overrides, file)
    from zoo.training.run import PretrainRun

    with _processes(run_options) as dist:
        run = run_options.build_run(PretrainRun, values, dist, overrides, file)
        return _start(run, run_options)


@checked
def finetune(
    model: AnyPath | None = None,
    *,
    task: str | None = None,
    train: AnyPaths = (),
    eval: AnyPaths = (),
    weight: Mapping[str, float] | Sequence[str] = (),
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    skip_invalid: bool | None = None,
    preset: str | None = None,
    adapter: str | None = None,
    global_tokens: str | None = None,
    freeze: int | None = None,
    size: str | None = None,
    tokenizer: AnyPath | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    learning_rate: float | None = None,
    max_steps: int | None = None,
    batch_size: int | None = None,
    max_seq_len: int | None = None,
    report_to: str | Sequence[str] = (),
    settings: Settings | None = None,
    seed: int | None = None,
    epochs: float | None = None,
    max_time: str | float | None = None,
    seeds: int | None = None,
    from_scratch: bool = False,
    resume: AnyPath | None = None,
    auto_resume: bool = False,
    continue_from: AnyPath | None = None,
    reset_optimizer: bool = False,
    device: str | None = None,
    fsdp: bool | None = None,
    keep_optimizer: bool | None = None,
    threads: int | None = None,
    offline: bool = False,
    output: AnyPath | None = None,
    force: bool = False,
    dry_run: bool = False,
    timeout: str | float | None = None,
    **options: Any,
) -> Training:
    """Fine-tune a model on labelled data; ``zoo finetune`` does the same.

    The best checkpoint becomes the final model. An interrupted run resumes bit for bit.

    Args:
        model: reference to a model, a family for random weights, or a YAML file of settings.
        task: what to learn, such as ``text-classification``; ``zoo finetune --help`` lists tasks.
        train: training data, ``FILE`` or ``NAME=FILE``.
        eval: evaluation data; by default a tenth of the training data.
        weight: name in ``train`` -> its share of the rows, or texts ``NAME=SHARE``; all add up
            to 1.
        text: column of the text.
        pair: column of the second text.
        label: column of the label.
        skip_invalid: leave out rows that cannot be used, and count them.
        preset: defaults: ``paper``, ``stable``, or the family's others.
        adapter: train an adapter of this method, and keep the model as it is.
        global_tokens: tokens with global attention in place of the model's, see ``zoo.convert``.
        freeze: train neither the embeddings nor this number of the lowest layers.
        size: size of a model with random weights.
        tokenizer: model whose tokenizer a model with random weights uses; by default one is
            trained.
        lowercase: whether a trained tokenizer lower-cases texts; by default it keeps their case.
        strip_accents: whether it removes accents; by default if it lower-cases.
        learning_rate: highest learning rate, which the schedule multiplies.
        max_steps: number of optimizer steps.
        batch_size: number of rows per optimizer step.
        max_seq_len: largest number of tokens of a row.
        report_to: loggers: ``tensorboard``, ``wandb``, ``mlflow``, or plugins'.
        settings: further settings, nested or by names with dots, such as
            ``{"optimizer.max_grad_norm": 0.5}``; ``config.yaml`` of a run lists all.
        seed: random seed; by default 0.
        epochs: number of passes over the training data.
        max_time: time of training, in seconds or as ``90s``, ``3m`` or ``1h30m``.
        seeds: train this number of runs, with seeds from ``seed`` on.
        from_scratch: also train the same model from random weights, with the same data, seeds and
            settings; one report has the curves of both, and ``summary`` their differences.
        resume: directory of a run to resume.
        auto_resume: start the run ``output``, or resume it if it has begun with the same settings.
        continue_from: directory of a run; a new one begins with its last checkpoint.
        reset_optimizer: then, begin with a new state of the optimizer.
        device: device, such as ``cpu``; by default CUDA if available.
        fsdp: shard weights and optimizer state over processes.
        keep_optimizer: keep the optimizer's state at the end, for ``continue_from``.
        threads: number of CPU threads.
        offline: open no connection.
        output: directory of the run; by default a new one in ``runs``.
        force: move an earlier run in this directory to ``DIR.old-1``.
        dry_run: return the plan, and train nothing.
        timeout: time that several processes wait for each other, in seconds or as ``90s`` or
            ``10m``; by default 10 minutes.
        **options: options of the task, with underscores, such as ``template`` or ``doc_stride``.

    Returns:
        ``run``, ``model`` and ``report``; over several seeds ``runs``, and the ``model`` of the
        median run. With ``from_scratch``, ``runs`` of both models, the ``model`` of the pretrained
        ones, ``report`` and ``summary``.

    Raises:
        UsageError: a setting or an argument is unknown or wrong, or the directory exists.
        SourceError: a model or file is missing.
        VerificationError: a file is damaged, or a loss is not finite.
        Interrupted: a signal came; ``resume`` continues.

    Example:
        >>> training = zoo.finetune(  # doctest: +SKIP
        ...     "runs/books/model", task="text-classification", train="t.tsv", text="s"
        ... )
        >>> zoo.load(training.model).classify(["A fine film."])  # doctest: +SKIP
    """
    if model is None and not (resume or continue_from):
        raise UsageError(
            "there is nothing to fine-tune", "name a model or a family, or give --resume RUN"
        )
    run_options = _run_options(
        seeds=seeds,
        resume=resume,
        auto_resume=auto_resume,
        continue_from=continue_from,
        reset_optimizer=reset_optimizer,
        device=device,
        threads=threads,
        offline=offline,
        output=output,
        force=force,
        max_time=max_time,
        dry_run=dry_run,
        timeout=timeout,
    )
    shared_options = {
        "task": task,
        "train": tuple(as_paths(train)),
        "eval": tuple(as_paths(eval)),
        "weight": weight or (),
        "text": text,
        "pair": pair,
        "label": label,
        "skip_invalid": skip_invalid,
        "preset": preset,
        "adapter": adapter,
        "global_tokens": global_tokens,
        "freeze": freeze,
        "size": size,
        "tokenizer": None if tokenizer is None else as_reference(tokenizer),
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "learning_rate": learning_rate,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "max_seq_len": max_seq_len,
        "report_to": _as_tuple(report_to),
        "seed": seed,
        "epochs": epochs,
        "fsdp": fsdp,
        "keep_optimizer": keep_optimizer,
    }
    subject = None if model is None else as_reference(model)
    paths = FINETUNE_SETTINGS | task_settings(task)
    for name in options:
        if name not in paths:
            hint = did_you_mean(name, list(paths)) or "`settings` takes any setting"
            raise UsageError(f"{task or 'fine-tuning'} has no option {name!r}", hint)
    _check_places("finetune", shared_options, run_options)
    values = finetune_values(subject)
    overrides = collect_settings(paths, {**shared_options, **options}, settings)
    file = config_file(subject)
    resuming = run_options.resume is not None or run_options.continue_from is not None
    check_settings("finetune", values, overrides, file, resuming=resuming)
    from zoo.finetuning.runs import SUMMARY, FineTuneRun, select_median_run

    with _processes(run_options) as dist:
        run = run_options.build_run(FineTuneRun, values, dist, overrides, file)
        if from_scratch or _is_comparison(run_options):
            assert isinstance(run, FineTuneRun), "it was built as one"
            return _compare_with_scratch(run, run_options, from_scratch=from_scratch)
        training = _start(run, run_options)
    if not training.runs or not dist.is_main_process:
        return training
    directory = training.run
    median_paths = {
        "model": select_median_run(directory, training.runs),
        "summary": directory / SUMMARY,
    }
    return replace(training, paths={**training.paths, **median_paths})


def _is_comparison(options: RunOptions) -> bool:
    """Return whether a comparison is resumed: a directory that ``from_scratch`` made."""
    from zoo.training.state.progress import is_comparison

    path = options.output if options.auto_resume else options.resume
    return path is not None and is_comparison(path)


def _compare_with_scratch(
    run: "FineTuneRun", options: RunOptions, *, from_scratch: bool
) -> Training:
    """Start or resume a pretrained model's runs next to those of one with random weights."""
    from zoo.finetuning.from_scratch import (
        describe_comparison,
        resume_comparison,
        train_comparison,
    )
    from zoo.finetuning.runs import SUMMARY
    from zoo.training.logging.report import REPORT

    for flag, value in (
        ("--continue-from", options.continue_from),
        ("--reset-optimizer", options.reset_optimizer or None),
    ):
        if value is not None:
            raise UsageError(f"--from-scratch begins both models, not {flag}", "leave one out")
    if options.dry_run:
        if options.resume is not None or options.auto_resume:
            raise UsageError("--dry-run describes a new run", "leave it out")
        plan = describe_comparison(run)
        if options.seeds is not None:
            plan["seeds"] = f"{options.seeds} runs of each model"
        return Training({}, plan=plan)
    if options.auto_resume:
        comparison = _start_or_resume_comparison(run, options, from_scratch=from_scratch)
    elif options.resume is None:
        comparison = train_comparison(run, options.seeds)
    else:
        _check_resumed_comparison(run, options)
        comparison = resume_comparison(run, options.resume)
    runs = [path for paths in comparison.runs.values() for path in paths]
    paths = {
        "runs": comparison.path,
        "model": comparison.model,
        "report": comparison.path / REPORT,
        "summary": comparison.path / SUMMARY,
    }
    return Training(paths, tuple(runs))


def _start_or_resume_comparison(
    run: "FineTuneRun", options: RunOptions, *, from_scratch: bool
) -> "Comparison":
    from zoo.finetuning.from_scratch import resume_same_comparison, train_comparison
    from zoo.training.state.progress import is_comparison

    output = _auto_resumed_output(run, options)
    if not from_scratch:
        raise UsageError(f"{output} also has runs from scratch", "give --from-scratch")
    has_begun = is_comparison(output)
    if run.dist.broadcast("begun" if has_begun else "new") == "begun":
        return resume_same_comparison(run, output, options.seeds)
    if output.exists():
        raise UsageError(f"{output} has no runs from scratch", "leave --from-scratch out")
    return train_comparison(run, options.seeds)


def _check_resumed_comparison(run: "FineTuneRun", options: RunOptions) -> None:
    """Check the options next to ``--resume`` with a comparison."""
    from zoo.training.state.progress import is_comparison

    assert options.resume is not None, "a comparison is resumed"
    if not is_comparison(options.resume):
        raise UsageError(f"{options.resume} has no runs from scratch", "leave --from-scratch out")
    if run.force:
        raise UsageError("--force is for new runs", "leave it out with --resume")
    if run.output not in (None, options.resume):
        raise UsageError(f"--resume {options.resume} continues in that directory", "leave -o out")
    if options.seeds is not None or run.given:
        raise UsageError(
            f"--resume {options.resume} uses the settings of its runs", "leave other options out"
        )


@checked
def distill(
    teacher: AnyPaths = (),
    student: AnyPath | None = None,
    *,
    file: AnyPath | None = None,
    recipe: AnyPath | None = None,
    train: AnyPaths = (),
    eval: AnyPaths = (),
    weight: Mapping[str, float] | Sequence[str] = (),
    objective: str | None = None,
    task: str | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    skip_invalid: bool | None = None,
    preset: str | None = None,
    align: Alignment | None = None,
    teacher_backend: TeacherBackend | None = None,
    cache_teacher: AnyPath | None = None,
    shard: str | None = None,
    global_batch_tokens: int | None = None,
    learning_rate: float | None = None,
    max_steps: int | None = None,
    batch_size: int | None = None,
    max_seq_len: int | None = None,
    report_to: str | Sequence[str] = (),
    settings: Settings | None = None,
    seed: int | None = None,
    score: bool = True,
    score_backend: ScoreBackend | Sequence[ScoreBackend] = (),
    min_retention: float | None = None,
    epochs: float | None = None,
    max_time: str | float | None = None,
    seeds: int | None = None,
    resume: AnyPath | None = None,
    auto_resume: bool = False,
    continue_from: AnyPath | None = None,
    reset_optimizer: bool = False,
    device: str | None = None,
    fsdp: bool | None = None,
    keep_optimizer: bool | None = None,
    threads: int | None = None,
    offline: bool = False,
    output: AnyPath | None = None,
    force: bool = False,
    dry_run: bool = False,
    timeout: str | float | None = None,
) -> Training:
    """Distil a student from one or several teachers; ``zoo distill`` does the same.

    Args:
        teacher: reference to the teacher, or several.
        student: a family, whose student has half of the teacher's layers; a size of the teacher's
            family; a reference to a model; or ``static``.
        file: YAML file of settings.
        recipe: name of a recipe, or a YAML file; by default the family's.
        train: files or directories of text, or a built corpus; tables with ``task``; by default
            the corpus of the package. ``NAME=PATH`` is one of several sources.
        eval: held-out data; ``NAME=PATH`` is the data of a source.
        weight: source -> its share of the training data, or texts ``NAME=SHARE``; all add up to 1.
        objective: objective of the student on text.
        task: task on labelled data, such as ``text-classification``.
        text: column of the text, of labelled data.
        pair: column of the second text.
        label: column of the label.
        skip_invalid: leave out rows that cannot be used, and count them.
        preset: settings of the task, see ``zoo.finetune``.
        align: align by ``tokens`` (same tokenizer) or by ``text`` embeddings; by default tokens.
        teacher_backend: where the teachers run; by default where the student does.
        cache_teacher: directory in which the teacher's outputs are kept, and read again.
        shard: only compute a part of these outputs, such as ``1/4``, and train nothing; a run
            begins once all parts are there.
        global_batch_tokens: number of tokens per optimizer step, on text.
        learning_rate: highest learning rate, which the schedule multiplies.
        max_steps: number of optimizer steps.
        batch_size: number of rows per optimizer step.
        max_seq_len: largest number of tokens of a row.
        report_to: loggers: ``tensorboard``, ``wandb``, ``mlflow``, or plugins'.
        settings: further settings, nested or by names with dots, such as
            ``{"student.num_layers": 3}``; ``config.yaml`` of a run lists all.
        seed: random seed; by default 0.
        score: compare the student with its teachers.
        score_backend: backend whose speed is measured, or several.
        min_retention: least fraction of the teacher's quality that the student has to keep.
        epochs: number of passes over the training data.
        max_time: time of training, in seconds or as ``90s``, ``3m`` or ``1h30m``.
        seeds: train this number of runs, with seeds from ``seed`` on.
        resume: directory of a run to resume.
        auto_resume: start the run ``output``, or resume it if it has begun with the same settings.
        continue_from: directory of a run; a new one begins with its last checkpoint.
        reset_optimizer: then, begin with a new state of the optimizer.
        device: device, by default CUDA if available.
        fsdp: shard weights and optimizer state over processes.
        keep_optimizer: keep the optimizer's state at the end, for ``continue_from``.
        threads: number of CPU threads.
        offline: open no connection.
        output: directory of the run, by default a new one in ``runs``.
        force: move an earlier run in this directory to ``DIR.old-1``.
        dry_run: return the plan, and train nothing.
        timeout: time that several processes wait for each other, in seconds or as ``90s`` or
            ``10m``; by default 10 minutes.

    Returns:
        ``run``, ``model`` and ``scores``; over several seeds ``runs``, ``seed_scores``, and the
        ``model`` of the median run.

    Raises:
        UsageError: a setting, recipe, student or teacher is unknown or wrong.
        SourceError: a model or file is missing.
        VerificationError: a file is damaged, a loss is not finite, or the student keeps less than
            ``min_retention``; its run remains.
        Interrupted: a signal came; ``resume`` continues.

    Example:
        >>> result = zoo.distill("runs/books/model", "tiny", train="books/")  # doctest: +SKIP
        >>> result.scores.retention  # doctest: +SKIP
        0.953
        >>> student = zoo.load(result.model)  # doctest: +SKIP
    """
    teachers = tuple(as_paths(teacher))
    if file is None and not teachers and not (resume or continue_from):
        raise UsageError(
            "no teacher is named", "name a teacher and a student, or give --resume RUN"
        )
    backends = _as_tuple(score_backend)
    check_scoring(score=score, min_retention=min_retention, score_backend=backends)
    if shard is not None:
        _require_no_run(
            {
                "--seeds": seeds,
                "--resume": resume,
                "--auto-resume": auto_resume,
                "--continue-from": continue_from,
                "--output": output,
                "--force": force,
                "--max-time": max_time,
                "--dry-run": dry_run,
                "--min-retention": min_retention,
            }
        )
    run_options = _run_options(
        seeds=seeds,
        resume=resume,
        auto_resume=auto_resume,
        continue_from=continue_from,
        reset_optimizer=reset_optimizer,
        device=device,
        threads=threads,
        offline=offline,
        output=output,
        force=force,
        max_time=max_time,
        dry_run=dry_run,
        timeout=timeout,
    )
    options = {
        "teacher": teachers,
        "student": None if student is None else as_reference(student),
        "recipe": None if recipe is None else str(as_path(recipe, "file")),
        "train": tuple(as_paths(train)),
        "eval": tuple(as_paths(eval)),
        "weight": weight or (),
        "objective": objective,
        "task": task,
        "text": text,
        "pair": pair,
        "label": label,
        "skip_invalid": skip_invalid,
        "preset": preset,
        "align": align,
        "teacher_backend": teacher_backend,
        "cache_teacher": None if cache_teacher is None else str(as_path(cache_teacher, "output")),
        "global_batch_tokens": global_batch_tokens,
        "learning_rate": learning_rate,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "max_seq_len": max_seq_len,
        "report_to": _as_tuple(report_to),
        "seed": seed,
        "epochs": epochs,
        "fsdp": fsdp,
        "keep_optimizer": keep_optimizer,
    }
    subject = None if file is None else as_reference(file)
    _check_places("distill", options, run_options)
    values = distill_values(subject)
    paths = distill_settings(
        {
            **options,
            "resume": run_options.resume,
            "continue_from": run_options.continue_from,
            "settings": settings,
        },
        values,
    )
    overrides = collect_settings(paths, options, settings)
    check_settings("distill", values, overrides, config_file(subject))
    from zoo.distillation.runs import DistillRun

    with _processes(run_options) as dist:
        file = config_file(subject)
        run = run_options.build_run(DistillRun, values, dist, overrides, file)
        if shard is not None:
            assert isinstance(run, DistillRun), "it was built as one"
            return _compute_teacher_shard(run, shard)
        training = _start(run, run_options)
    if dist.is_main_process and not training.plan:
        training = _scored(training, overrides, run_options, backends, score=score)
        if min_retention is not None:
            training.require_retention(min_retention)
    return training


def _require_no_run(run_options: Mapping[str, object]) -> None:
    """Check that no option of a run is given with ``--shard``; values by option."""
    for option, value in run_options.items():
        if value is not None and value is not False:
            raise UsageError(
                "--shard computes outputs of the teacher, and trains nothing",
                f"leave {option} out, and give it to the run that reads them",
            )


def _compute_teacher_shard(run: "DistillRun", shard: str) -> Training:
    """Compute a shard of a teacher's outputs, and return what was done."""
    from zoo.data.many_files.shard import parse_shard

    computed = run.compute_teacher_shard(parse_shard(shard))
    fields = {"shard": computed.shard, "outputs": f"{computed.outputs:,}"}
    if computed.was_complete:
        fields["outputs"] = "complete before"
    fields["missing shards"] = "none; a run with this cache can begin"
    if computed.missing:
        fields["missing shards"] = first_names(list(computed.missing))
    return Training({"cache": computed.directory}, teacher_shard=fields)


def check_scoring(
    *, score: bool, min_retention: float | None, score_backend: Sequence[str]
) -> None:
    """Check that a student is scored if something is required of its scores."""
    if not score and (min_retention is not None or score_backend):
        raise UsageError("--no-score leaves nothing to measure or to require", "leave it out")


def _scored(
    training: Training,
    overrides: Settings,
    run_options: RunOptions,
    backends: Sequence[str],
    *,
    score: bool,
) -> Training:
    """Return the result of a distillation with scores; of several seeds also the median run."""
    from zoo.distillation.runs import DistillRun
    from zoo.distillation.scoring.score import score_run
    from zoo.distillation.scoring.seeds import summarize_seeds
    from zoo.finetuning.runs import MODEL, SUMMARY

    runs = [training.run]
    if training.runs:
        runs = [DistillRun.last_stage(run) for run in training.runs]
    scores = []
    if score:
        for run in runs:
            run_score = score_run(
                run,
                device=run_options.device,
                backends=backends,
                offline=run_options.offline,
                given=overrides,
            )
            scores.append(run_score)
    if not training.runs:
        return replace(training, scores=scores[0] if scores else None)
    directory = training.run
    spreads = summarize_seeds(directory, runs, scores)
    seed_scores = {}
    if scores:
        names = [str(run.relative_to(directory)) for run in runs]
        seed_scores = dict(zip(names, scores, strict=True))
    return replace(
        training,
        paths={**training.paths, "model": directory / MODEL, "summary": directory / SUMMARY},
        seed_scores=seed_scores,
        spreads=spreads,
    )


def _as_tuple(values: str | Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def _check_places(command: str, options: Mapping[str, Any], run_options: RunOptions) -> None:
    check_places(
        command,
        [*options["train"], *options["eval"]],
        run_options.output,
        force=run_options.force,
        resume=run_options.output if run_options.resumes_output else run_options.resume,
        continue_from=run_options.continue_from,
    )


@contextmanager
def _processes(options: RunOptions) -> "Iterator[DistContext]":
    """Yield rank and device; of several processes, only the main one speaks."""
    import torch

    from zoo.training.distributed.context import DistContext

    initial_threads = torch.get_num_threads()
    try:
        with DistContext.opened(options.device, options.threads, options.timeout) as dist:
            if not dist.is_main_process:
                logging.getLogger("zoo").setLevel(logging.CRITICAL)
                warnings.simplefilter("ignore")
                enable_progress(False)
            yield dist
    finally:
        if options.threads is not None:
            torch.set_num_threads(initial_threads)


def _start(run: "Run", options: RunOptions) -> Training:
    """Start, resume or continue a run, or one with each of several seeds."""
    from zoo.training.seeds import resume_seeds, train_seeds
    from zoo.training.state.progress import is_seed_directory

    resume = options.resume
    if options.auto_resume:
        return _start_or_resume(run, options)
    if options.dry_run:
        return _describe(run, options)
    if options.continue_from is not None:
        return _continue(run, options.continue_from, options)
    if options.reset_optimizer:
        raise UsageError("--reset-optimizer is for --continue-from RUN", "leave it out")
    if resume is None:
        if options.seeds is None:
            return _single(*run.start())
        return _several(train_seeds(run, options.seeds))
    if run.force:
        raise UsageError("--force is for new runs", "leave it out with --resume")
    if run.output not in (None, resume):
        raise UsageError(f"--resume {resume} continues in that directory", "leave -o out")
    if is_seed_directory(resume):
        if options.seeds is not None or run.given:
            raise UsageError(
                f"--resume {resume} uses the settings of its runs", "leave other options out"
            )
        return _several(resume_seeds(run, resume))
    if options.seeds is not None:
        raise UsageError(f"{resume} is a single run", "leave --seeds out")
    return _single(*run.resume(resume))


def _start_or_resume(run: "Run", options: RunOptions) -> Training:
    """Start a run, or resume it if it has begun; a run that is finished is left as it is.

    Raises:
        UsageError: the run began with other settings, or other options decide what begins.
    """
    from zoo.training.seeds import resume_same_seeds
    from zoo.training.state.progress import is_seed_directory

    output = _auto_resumed_output(run, options)
    # The main process decides: another one may look after it has begun.
    has_begun = run.has_begun(output) or is_seed_directory(output)
    if run.dist.broadcast("begun" if has_begun else "new") == "new":
        return _start(run, replace(options, auto_resume=False))
    if not is_seed_directory(output):
        if options.seeds is not None:
            raise UsageError(f"{output} is a single run", "leave --seeds out")
        return _single(*run.resume_same(output))
    if options.seeds is None:
        raise UsageError(f"{output} has runs of several seeds", "give --seeds")
    return _several(resume_same_seeds(run, output, options.seeds))


def _auto_resumed_output(run: "Run", options: RunOptions) -> Path:
    """Return the directory of ``--auto-resume``, once no other option decides what begins."""
    from zoo.training.run import warn_of_late_hosts

    output = options.output
    if output is None:
        raise UsageError("--auto-resume has to know the run", "name its directory with -o")
    exclusive_options = {
        "--resume": options.resume,
        "--continue-from": options.continue_from,
        "--force": options.force or None,
        "--dry-run": options.dry_run or None,
    }
    for flag, value in exclusive_options.items():
        if value is not None:
            raise UsageError(f"--auto-resume and {flag} exclude each other", "leave one out")
    warn_of_late_hosts(run.dist)
    return output


def _describe(run: "Run", options: RunOptions) -> Training:
    """Return the plan of a new run."""
    for flag, value in (("--resume", options.resume), ("--continue-from", options.continue_from)):
        if value is not None:
            raise UsageError("--dry-run describes a new run", f"leave {flag} out")
    plan = run.describe()
    if options.seeds is not None:
        plan["seeds"] = f"{options.seeds} runs"
    return Training({}, plan=plan)


def _continue(run: "Run", parent: Path, options: RunOptions) -> Training:
    from zoo.training.state.progress import is_seed_directory, seed_directories

    for flag, value in (("--resume", options.resume), ("--seeds", options.seeds)):
        if value is not None:
            raise UsageError("--continue-from continues one run", f"leave {flag} out")
    if is_seed_directory(parent):
        first_run = seed_directories(parent)[0]
        raise UsageError(f"{parent} has runs of several seeds", f"name one, as {first_run}")
    return _single(*run.continue_from(parent, reset_optimizer=options.reset_optimizer))


def _single(run: Path, model: Path) -> Training:
    return Training({"run": run, "model": model, "report": run / "report.html"})


def _several(runs: Sequence[Path]) -> Training:
    return Training({"runs": runs[0].parent}, tuple(runs))
