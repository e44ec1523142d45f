"""Setup of a fine-tuning run from its configuration: samples, labels, tokenizer, model, task."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.checkpoint import TOKENIZER
from zoo.data.readers.documents import expand_paths
from zoo.data.readers.labelled import hold_out
from zoo.data.readers.problems import InvalidRows, RowProblems
from zoo.data.readers.review import DataReview, count_labels
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import UsageError
from zoo.finetuning.callbacks import (
    EarlyStopping,
    LoadBestModel,
    RecordMistakes,
)
from zoo.finetuning.mixture import TableMixture, source_paths, table_mixture, train_order
from zoo.finetuning.model import ModelSetup, Resumed, pretrained_init
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.order import EpochShuffle
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import FineTuningTask, TaskData, TaskSplit
from zoo.finetuning.weights import (
    freeze_lowest,
    load_backbone,
    new_modules,
    record_new_weights,
)
from zoo.inference.task_warnings import cut_line
from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.paths import readable_name
from zoo.nn.encoder import Encoder, supports_packed_rows
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.objectives.base import Batch
from zoo.overrides import override
from zoo.plugins import get_family
from zoo.plugins.tasks import training_task
from zoo.training.base import RunSetup
from zoo.training.callbacks.cut_texts import ReportCutTexts
from zoo.training.config.finetune import FineTuneConfig, TableConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.logging.jsonl import read_jsonl
from zoo.training.logging.selection import select_loggers
from zoo.training.mixed_dataset import RowSources
from zoo.training.state.load_weights import loaded_parameters
from zoo.training.state.pretrained import InitRecord
from zoo.training.state.run_manifest import RunManifest
from zoo.training.trainer import Callback

LOG = logging.getLogger("zoo")
DATA_SPLITS = ("train", "eval", "unlabelled")  # Parts of the data whose files are recorded.
Reviews = tuple[DataReview, DataReview]  # The training data's and the evaluation data's.
Splits = tuple[TaskSplit[Any], TaskSplit[Any]]
# The micro-batches of models without packed rows: small ones, sorted by length, need less padding.
CPU_MICRO_BATCH_SIZE = 8
DOC_STRIDE = "doc_stride"  # option of tasks that read long texts in windows


@dataclass(frozen=True, kw_only=True)
class FineTuneSetup(RunSetup):
    """Samples, model configuration and task of a fine-tuning run, without devices."""

    command: ClassVar[str] = "finetune"
    config: FineTuneConfig
    objective: FineTuning  # The task.
    train_rows: TokenizedRows  # Tokenized training data.
    eval_rows: TokenizedRows  # Tokenized evaluation data.
    eval_samples: Sequence[Any]  # Samples of ``eval_rows``, whose texts reports show.
    data: dict[str, Any]  # Record of files, columns and labels.
    # Tokenizer of the model; ``None`` where the family needs no file.
    run_tokenizer: ExistingTokenizer | None
    packs_rows: bool  # Pack the rows of a batch in training on a CPU; see ``Encoder``.
    announce: bool  # Log what the user should know about weights.
    # Sources of the rows that are trained and evaluated on, and their rows in a cycle; ``None``
    # without weights.
    mixture: "TableMixture | None" = None
    # Locations of samples that were skipped after they were read.
    dropped: frozenset[str] = frozenset()
    # What the run says at its end about texts that were truncated.
    cut_lines: Sequence[str] = ()

    @property
    @override
    def tokenizer(self) -> ExistingTokenizer | None:
        return self.run_tokenizer

    @property
    @override
    def generation(self) -> Mapping[str, Any]:
        return self.objective.context.generation

    @override
    def train_dataloader(self, dist: DistContext, *, completed_steps: int = 0) -> BatchLoader:
        is_split = self.objective.splits_micro_batches(dist.world_size)
        if is_split and self.objective.micro_batch_size % dist.world_size:
            raise UsageError(
                "samples are compared within their micro-batch of "
                f"{self.objective.micro_batch_size}, which "
                f"{dist.world_size} processes do not divide",
                f"--set micro_batch_size={self.config.batch_size // dist.world_size}, also for one "
                "process, gives the same run",
            )
        # Rows are not sorted by length if the other samples of a micro-batch are part of the loss.
        lengths = None if self.objective.compares_samples else self.train_rows.lengths
        return self._loader(
            self.train_rows,
            self.config.batch_size,
            dist,
            order=self.train_order(),
            lengths=lengths,
            split_micro_batches=is_split,
            sources=None if self.mixture is None else self.mixture.train,
        )

    def train_order(self) -> EpochShuffle:
        """Return the order of the training rows."""
        return train_order(self.objective, self.train_rows, self.mixture)

    @override
    def eval_batches(self, dist: DistContext) -> Sequence[Batch]:
        """Batches are made when they are read, from rows sorted by length."""
        rows = self.eval_rows
        order = rows.lengths.argsort(kind="stable").tolist()
        sources = None
        is_shared = len(rows) % dist.world_size == 0
        if self.mixture is not None:
            # Each process has batches of all sources.
            is_shared = dist.world_size == 1
            sources = self.mixture.evaluation
            order.sort(key=sources.source_number)
        if is_shared and self.objective.compares_samples:
            rows_per_process = len(rows) // dist.world_size
            is_shared = rows_per_process % self.objective.micro_batch_size == 0
        if not is_shared:
            # Each process evaluates all rows.
            dist = DistContext(0, 1, dist.device)
        loader = self._loader(rows, len(rows), dist, order=order, sources=sources)
        return loader.lazy_batches(0)

    def _loader(
        self,
        rows: TokenizedRows,
        batch_size: int,
        dist: DistContext,
        *,
        order: Any,
        lengths: NDArray[np.int64] | None = None,
        split_micro_batches: bool = False,
        sources: RowSources | None = None,
    ) -> BatchLoader:
        has_fixed_size = self.config.micro_batch_size is not None or self.objective.compares_samples
        size = self.objective.micro_batch_size
        if dist.device.type == "cpu" and not has_fixed_size and not self.packs_rows:
            size = min(CPU_MICRO_BATCH_SIZE, self.config.batch_size)
        return BatchLoader(
            self.objective,
            rows,
            seed=self.config.seed,
            global_batch_size=batch_size,
            micro_batch_size=size,
            rank=dist.rank,
            world_size=dist.world_size,
            order=order,
            lengths=lengths,
            collate_wrapper=self.collate_wrapper,
            device=dist.device,
            split_micro_batches=split_micro_batches,
            sources=sources,
        )

    @override
    def data_log(self) -> dict[str, Any] | None:
        """The numbers of skipped rows, if there are any."""
        if "skipped" not in self.data:
            return None
        return {"skipped": self.data["skipped"]}

    @override
    def manifest_fields(self) -> dict[str, Any]:
        info = None
        if self.run_tokenizer is not None:
            info = self.run_tokenizer.info
        return {"data": self.data, "tokenizer": info}

    @override
    def input_digests(self) -> dict[str, str]:
        digests = super().input_digests()
        for split in DATA_SPLITS:
            for name, digest in self.data.get(split, {}).items():
                digests[name] = digest["blake3"]
        return digests

    @override
    def require_same_data(self, run: Path, record: RunManifest) -> None:
        recorded_data = record.data or {}
        for split in DATA_SPLITS:
            old_files = recorded_data.get(split, {})
            new_files = self.data.get(split, {})
            changed_files = []
            for name in {**old_files, **new_files}:
                if old_files.get(name) != new_files.get(name):
                    changed_files.append(name)
            # Files that were only moved have the same digests.
            has_changes = list(old_files.values()) != list(new_files.values())
            if changed_files and has_changes:
                raise UsageError(
                    f"{changed_files[0]} is not what {run} began with",
                    "put it back as it was, or begin another run",
                )

    @property
    @override
    def origin(self) -> str:
        if self.config.init_from is not None and self.config.random_weights:
            return f"like {self.config.init_from.model}, with random weights"
        return super().origin

    @override
    def passes(self, steps: int) -> float:
        rows = self.train_order().num_rows
        return steps * self.config.batch_size / rows

    @override
    def plan(self) -> dict[str, str]:
        # The samples were logged when they were read.
        config = self.config
        passes = self.passes(config.max_steps)
        steps = f"{config.max_steps:,} of {config.batch_size:,} rows"
        return {"steps": f"{steps}, {passes:,.3g} passes over the data"}

    @override
    def training_record(self, run: Path, best: tuple[float, int] | None) -> dict[str, Any]:
        """The task, the data, and the metrics of the best evaluation."""
        metrics: dict[str, float] = {}
        records = read_jsonl(run)
        if best is not None:
            _, best_step = best
            for entry in records:
                if entry["step"] == best_step and entry["split"] == "validation":
                    metrics = entry["metrics"]
                    break
        record = {"task": self.config.task, "data": self.data, "metrics": metrics}
        if self.config.task_args:
            record["task_args"] = dict(self.config.task_args)
        return record

    @override
    def run_files(self) -> dict[str, bytes]:
        """The tokenizer, which may have been trained for the run."""
        if self.run_tokenizer is None:
            return {}
        return {TOKENIZER: self.run_tokenizer.json}

    @override
    def replaced_parameters(self, model: nn.Module) -> Iterable[Tensor]:
        """The parameters of the backbone, and of a head that is kept."""
        if self.init is None or not self.init.checkpoints or self.config.random_weights:
            return []
        network = self.objective.models_to_save(model)["model"]
        skip = new_modules(self.init, network, self.config.reinit_layers)
        return loaded_parameters(self.init.checkpoints["model"], network, skip=skip)

    @override
    def load_pretrained(self, model: nn.Module) -> InitRecord:
        assert self.init is not None, "called for runs that start from a checkpoint"
        if self.config.random_weights:
            return record_new_weights(self.init, model)
        record = load_backbone(
            self.init,
            self.family,
            self.objective.models_to_save(model)["model"],
            reinit_layers=self.config.reinit_layers,
            announce=self.announce,
        )
        new_names = self.objective.load_checkpoint(model, self.init.checkpoints["model"])
        if new_names and self.announce:
            LOG.info("new weights outside of the model: %s", ", ".join(new_names))
        new_parameters = [*record.new_parameters, *new_names]
        return msgspec.structs.replace(record, new_parameters=new_parameters)

    @override
    def prepare_model(self, model: nn.Module) -> None:
        """Apply options of the task, frozen layers and packed rows."""
        self.objective.prepare_model(model)
        freeze_lowest(model, self.config.freeze_layers)
        for module in model.modules():
            if isinstance(module, Encoder):
                module.packs_rows = self.packs_rows

    @override
    def callbacks(self, run: Path) -> list[Callback]:
        callbacks: list[Callback] = []
        patience = self.config.early_stopping_patience
        if patience is not None:
            callbacks.append(EarlyStopping(patience))
        callbacks.append(RecordMistakes(run, self.objective, self.eval_samples))
        callbacks.append(LoadBestModel(run))
        callbacks.append(ReportCutTexts(lambda _: self.cut_lines))
        return callbacks


def finetune_setup(
    config: FineTuneConfig,
    *,
    offline: bool = False,
    check_contents: bool = True,
    resumed: Resumed | None = None,
) -> FineTuneSetup:
    """Read the samples, and make the model configuration and the task."""
    family = get_family(config.family)
    loggers = select_loggers(config.report_to)
    task: FineTuningTask[Any] = training_task(config.task)
    announce = check_contents and resumed is None
    # A family without the head is an error before files are read.
    task.model.resolve_head(task, family)
    # Options are checked before the data is read, which can take minutes.
    init = pretrained_init(config, family, offline=offline, resumed=resumed)
    task.model.parse_options(task, task.model.resolve_settings(task, config, init))
    problems = SplitProblems(skip=config.data.skip_invalid)
    with problems:
        train, evaluation = read_splits(task.data, config, problems, announce=announce)
        model = ModelSetup.make(
            config, family, task, train, init=init, offline=offline, resumed=resumed
        )
        objective = model.objective(task, family)
        train = objective.usable(train, problems.train)
        evaluation = objective.usable(evaluation, problems.evaluation)
        require_samples(train, evaluation)
        objective.require_metric(evaluation)
    train_split, eval_split = tokenize_splits(objective, train, evaluation, problems)
    splits = (train_split, eval_split)
    reviews = (
        _review(task.data, train_split.samples, config.data),
        _review(task.data, eval_split.samples, config.data),
    )
    mixture = table_mixture(task.data, config.data, splits)
    config = model.settings.resolved(
        train_order(objective, train_split.rows, mixture).num_rows,
        metric_for_best_model=objective.metric_for_best_model,
        greater_is_better=objective.greater_is_better,
    )
    cut_lines = _cut_lines(config, objective, splits, family.max_seq_len(model.config))
    if announce:
        problems.announce()
        _announce(config, objective, splits, reviews)
        for line in cut_lines:
            LOG.warning("warning: %s", line)
        for line in _review_warnings(reviews, splits):
            LOG.warning("warning: %s", line)
        for line in task.data.warnings(objective.context, train_split, eval_split):
            LOG.warning("warning: %s", line)
    packs_rows = not config.compile and not task.inputs.reads_unattended(objective.context)
    if packs_rows:
        with init_empty_weights():
            packs_rows = supports_packed_rows(family.model(model.config, objective.head))
    return FineTuneSetup(
        config=config,
        family=family,
        model_config=model.config,
        objective=objective,
        loggers=loggers,
        init=model.init,
        train_rows=train_split.rows,
        eval_rows=eval_split.rows,
        eval_samples=eval_split.samples,
        data=_data_record(config, objective, splits, reviews, problems, mixture),
        mixture=mixture,
        dropped=problems.dropped,
        run_tokenizer=model.tokenizer,
        packs_rows=packs_rows,
        announce=announce,
        cut_lines=cut_lines,
    )


class SplitProblems:
    """Rows of the training and evaluation data that cannot be used.

    As a context manager, it refuses all of them at the end, unless ``skip`` is set.
    """

    def __init__(self, *, skip: bool) -> None:
        self.skip = skip
        self.dropped = frozenset[str]()
        self.train = RowProblems(skip=skip)
        self.evaluation = RowProblems(skip=skip)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each split."""
        return {"train": self.train.count, "eval": self.evaluation.count}

    def require_none(self) -> None:
        """Refuse the rows, unless they are skipped."""
        together = RowProblems(skip=self.skip)
        together.first_errors = [*self.train.first_errors, *self.evaluation.first_errors]
        together.count = sum(self.counts.values())
        together.require_none()

    def announce(self) -> None:
        """Log the rows that were skipped."""
        shown = [*self.train.first_errors, *self.evaluation.first_errors]
        if shown:
            count = sum(self.counts.values())
            LOG.warning("warning: %s rows are skipped, such as %s", f"{count:,}", shown[0].what)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        if error is None or isinstance(error, UsageError):
            self.require_none()


def tokenize_splits(
    objective: FineTuning,
    train: Sequence[Any],
    evaluation: Sequence[Any],
    problems: SplitProblems,
) -> tuple[TaskSplit[Any], TaskSplit[Any]]:
    """Tokenize both splits; samples without tokens are refused, or skipped."""
    train_split = _tokenize(objective.set_train, train, problems, problems.train)
    eval_split = _tokenize(objective.set_evaluation, evaluation, problems, problems.evaluation)
    return train_split, eval_split


def _tokenize(
    tokenize: Callable[[Sequence[Any]], TaskSplit[Any]],
    samples: Sequence[Any],
    problems: SplitProblems,
    split_problems: RowProblems,
) -> TaskSplit[Any]:
    try:
        return tokenize(samples)
    except InvalidRows as error:
        empty = {row.location for row in error.errors}
        with_tokens = [sample for sample in samples if sample.location not in empty]
        if not (problems.skip and with_tokens):
            raise
        for row in error.errors:
            split_problems.add(row)
        problems.dropped |= empty
    return tokenize(with_tokens)


def read_splits(
    reader: TaskData[Any], config: FineTuneConfig, problems: SplitProblems, *, announce: bool
) -> tuple[list[Any], list[Any]]:
    """Return the samples to train and to evaluate on."""
    table = config.data
    check = partial(reader.check, table=table)
    evaluation = list[Any]()
    train_samples = reader.read(source_paths(reader, table.train), table, problems.train)
    train = list(problems.train.checked(train_samples, check))
    if table.eval:
        eval_paths = source_paths(reader, table.eval)
        eval_samples = reader.read_evaluation(eval_paths, table, problems.evaluation)
        evaluation = list(problems.evaluation.checked(eval_samples, check))
    require_samples(train, evaluation if table.eval else train)
    if table.eval:
        return train, evaluation
    trained, held_out = hold_out(train, table.eval_fraction, reader.split_hint)
    labels = {name for sample in trained for name in reader.label_names(sample, table)}
    # A sample with a rare label is trained on rather than held out.
    kept_out = list[Any]()
    moved_back = list[Any]()
    for sample in held_out:
        if labels.issuperset(reader.label_names(sample, table)):
            kept_out.append(sample)
        else:
            moved_back.append(sample)
    if not kept_out:
        raise UsageError(
            f"the {len(train):,} rows cannot be split into training and evaluation: those to hold "
            "out have labels that no other row has",
            "give --eval",
        )
    if announce:
        LOG.info(
            "%s of %s samples are held out for evaluation, by a hash of their texts",
            f"{len(kept_out):,}",
            f"{len(train):,}",
        )
    return [*trained, *moved_back], kept_out


def require_samples(train: Sequence[Any], evaluation: Sequence[Any]) -> None:
    """Check that both splits have samples."""
    if not (train and evaluation):
        split = "evaluation" if train else "training"
        raise UsageError(f"no row of the {split} data can be used", "correct the labels")


def _review(reader: TaskData[Any], samples: Sequence[Any], table: TableConfig) -> DataReview:
    review = DataReview()
    for sample in samples:
        review.add(reader.review(sample, table), sample.location)
    return review


def _review_warnings(reviews: Reviews, splits: Splits) -> Iterator[str]:
    """Yield what the user should know about texts and labels."""
    names = ("samples to train on", "samples to evaluate")
    for review, split, split_name in zip(reviews, splits, names, strict=True):
        yield from review.warnings(split_name, partial(_locations, split.samples))
    train_review, eval_review = reviews
    shared_samples = eval_review.shared_with(train_review)
    if shared_samples:
        yield f"{shared_samples:,} samples to evaluate have the texts of samples to train on"


def _locations(samples: Sequence[Any], numbers: Collection[int]) -> dict[int, str]:
    return {number: samples[number].location for number in numbers}


def _announce(
    config: FineTuneConfig,
    objective: FineTuning,
    splits: Splits,
    reviews: Reviews,
) -> None:
    """Log sizes and labels."""
    train_rows, eval_rows = (split.rows for split in splits)
    labels = objective.labels
    label_names = ""
    if labels:
        label_names = f", labels {', '.join(labels[:8])}"
    LOG.info(
        "%s samples, %s to evaluate%s; %s steps",
        f"{len(train_rows):,}",
        f"{len(eval_rows):,}",
        label_names,
        f"{config.max_steps:,}",
    )
    for review, purpose in zip(reviews, ("to train on", "to evaluate"), strict=True):
        if review.labels:
            LOG.info("%s: %s", purpose, count_labels(review.labels, labels))
    if config.batch_size > len(train_rows):
        LOG.warning(
            "warning: batch_size is %s, and the training data has %s rows: a step repeats rows",
            f"{config.batch_size:,}",
            f"{len(train_rows):,}",
        )


def count_cut_texts(*parts: TokenizedRows) -> tuple[int, int]:
    """Return how many texts of rows were truncated, and how many there are."""
    truncated = 0
    total = 0
    for rows in parts:
        truncated += rows.truncated
        total += rows.num_texts or len(rows) * (1 + len(rows.others))
    return truncated, total


def _cut_lines(
    config: FineTuneConfig, objective: FineTuning, splits: Splits, limit: int | None
) -> list[str]:
    """Return the line on truncated texts, if there are any, with what reads more of them."""
    truncated, total = count_cut_texts(*(split.rows for split in splits))
    if not truncated:
        return []
    remedies = list[str]()
    if config.max_seq_len != limit:
        up_to = f", up to {limit}" if limit else ""
        remedies.append(f"--set max_seq_len=N reads more{up_to}")
    if DOC_STRIDE in objective.task.options_type.__struct_fields__:
        remedies.append("--doc-stride N reads them in windows")
    remedy = ", ".join(remedies) or "the model cannot read more: split them into several rows"
    return [cut_line(truncated, total, config.max_seq_len, remedy)]


def _data_record(
    config: FineTuneConfig,
    objective: FineTuning,
    splits: Splits,
    reviews: Reviews,
    problems: SplitProblems,
    mixture: TableMixture | None,
) -> dict[str, Any]:
    """Return the record of files, columns, labels and rows for the run's manifest."""
    table = config.data
    reader = objective.task.data
    train_rows, eval_rows = (split.rows for split in splits)
    train_review, eval_review = reviews
    record: dict[str, Any] = {
        "train": _digests(reader.data_paths(source_paths(reader, table.train))),
        "eval": _digests(reader.data_paths(source_paths(reader, table.eval))),
    }
    if table.unlabelled:
        record["unlabelled"] = _digests(table.unlabelled)
    record["columns"] = {"text": table.text, "pair": table.pair, "label": table.label_column}
    record["labels"] = list(objective.labels)
    record["rows"] = {"train": len(train_rows), "eval": len(eval_rows)}
    if mixture is not None:
        record["weights"] = dict(table.weights or mixture.shares)
    record["truncated"] = train_rows.truncated + eval_rows.truncated
    if train_review.labels or eval_review.labels:
        record["label_counts"] = {
            "train": dict(train_review.labels),
            "eval": dict(eval_review.labels),
        }
    if any(problems.counts.values()):
        record["skipped"] = problems.counts
    return record


def _digests(paths: Sequence[str]) -> Mapping[str, Any]:
    digests: dict[str, FileDigest] = {}
    if paths:
        for file in expand_paths(paths):
            digests[readable_name(file)] = hash_file(file)
    return msgspec.to_builtins(digests)  # type: ignore[no-any-return]
