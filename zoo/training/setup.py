"""Setup of a pretraining run from its configuration: corpus, tokenizer, objective, batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import msgspec
from torch import nn

from zoo.checkpoint import TOKENIZER
from zoo.conversion.model_tensors import check_rules_of_plugin
from zoo.data.mixture import MixtureOrder, StreamSteps
from zoo.data.order import DEFAULT_ORDER, DataOrder, EpochOrder, RowOrder
from zoo.data.shares import MixtureStage
from zoo.data.streams.lane_order import LaneOrder, StepRows
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.recipe import SeqLenWarmup
from zoo.families.vocabulary import vocabulary_tensors
from zoo.objectives import objective_type
from zoo.objectives.base import Batch, ExampleDataset, Objective, SourceCounts
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.objectives.options import parse_options
from zoo.objectives.seq2seq import Seq2SeqDataset
from zoo.overrides import override
from zoo.plugins import get_family
from zoo.training.adapter import require_pretrained
from zoo.training.base import RunSetup
from zoo.training.config.schema import EpochsConfig, TrainConfig
from zoo.training.dataloader import BatchLoader, Collate
from zoo.training.devices import collate_static
from zoo.training.distributed.context import DistContext
from zoo.training.fit_model import adapt_model_config, check_memory
from zoo.training.logging.selection import select_loggers
from zoo.training.mixed_dataset import MixedDataset
from zoo.training.mixture import (
    MANY_PASSES,
    continued_stages,
    new_stages,
    open_sources,
    source_record,
    stages_of_loader,
    tokens_by_source,
)
from zoo.training.state.load_weights import missing_modules, missing_modules_error
from zoo.training.state.pretrained import PretrainedInit, require_known_tokens
from zoo.training.state.run_manifest import RunManifest, TextSourceRecord
from zoo.training.state.stream_record import StreamRecord
from zoo.training.streaming.data import (
    StreamData,
    open_stream,
    require_same_shards,
    require_tokenizer,
)
from zoo.training.streaming.loader import LANES, StreamLoader
from zoo.training.streaming.rows import StreamRows
from zoo.weights.names import inside

if TYPE_CHECKING:
    from zoo.data.corpus import Corpus
    from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain
    from zoo.training.trainer import Callback


@dataclass(frozen=True, kw_only=True)
class PretrainSetup(RunSetup):
    """Corpus, model configuration and objective of a pretraining run, without devices."""

    command: ClassVar[str] = "pretrain"
    config: TrainConfig
    corpus: "Corpus"  # The tokenized corpus; with a stream, only its held-out documents.
    stream: StreamData | None = None  # What is trained on in place of the corpus.
    objective: Objective
    # The objective with the shorter rows of a sequence-length warm-up.
    warmup_objective: Objective | None = None
    first_config: Any = None  # Configuration of the model in these rows, if it differs.
    # Kind of the order of documents and rows; a run that has begun keeps its own.
    data_order: DataOrder = DEFAULT_ORDER
    # Source -> its tokenized corpus, of which ``corpus`` is the first; empty without sources.
    sources: "Mapping[str, Corpus]" = field(default_factory=dict)
    # Source that is a stream -> what is trained on in place of its corpus, which has its held-out
    # documents.
    source_streams: Mapping[str, StreamData] = field(default_factory=dict)
    # Weights of the sources, and from which step on.
    stages: Sequence[MixtureStage] = ()

    @property
    @override
    def tokenizer(self) -> "ExistingTokenizer":
        from zoo.data.tokenizer import ExistingTokenizer

        return ExistingTokenizer(self.corpus.tokenizer_json, self.corpus.record.tokenizer)

    @override
    def train_dataloader(self, dist: DistContext, *, completed_steps: int = 0) -> BatchLoader:
        return train_dataloader(self, dist, completed_steps=completed_steps)

    @override
    def eval_batches(self, dist: DistContext) -> list[Batch]:
        return eval_batches(self, dist)

    @override
    def callbacks(self, run: Path) -> "list[Callback]":
        from zoo.training.callbacks.cut_texts import ReportCutTexts, cut_training_rows
        from zoo.training.stages import StageCallback

        callbacks: list[Callback] = [ReportCutTexts(cut_training_rows, warn=False)]
        if self.first_config is not None:
            first_steps = self.config.seq_len_warmup_steps
            callbacks.append(
                StageCallback(self.family, self.first_config, self.model_config, first_steps)
            )
        return callbacks

    def row_order(
        self, dataset: ExampleDataset, objective: Objective, first_row: int = 0
    ) -> RowOrder:
        """Return the order in which the rows of a dataset for an objective are read.

        Args:
            dataset: the rows.
            objective: the objective that made them.
            first_row: number of rows that were read before, with other numbers of rows per step.
        """
        config = self.config
        if not isinstance(dataset, MixedDataset):
            return EpochOrder(self.data_order, len(dataset), config.seed)
        first_step = config.seq_len_warmup_steps
        last_step = config.max_steps
        if objective is self.warmup_objective:
            first_step = 0
            last_step = config.seq_len_warmup_steps
        stages = stages_of_loader(self.stages, first_step, last_step)
        lanes = {name: stream.source.lanes for name, stream in self.source_streams.items()}
        steps = StreamSteps(lanes, config.batch_size(objective.length), first_row)
        return MixtureOrder(self.data_order, dataset.sizes, stages, config.seed, steps)

    @property
    def train_tokens(self) -> int:
        """Number of tokens of the training data."""
        corpora = self.sources.values() or [self.corpus]
        return sum(corpus.record.splits["train"].tokens for corpus in corpora)

    @override
    def source_shares(self) -> dict[str, float]:
        shares: dict[str, float] = {}
        for stage in self.stages:
            if stage.step < self.config.max_steps:
                shares = {name: stage.shares.get(name, 0.0) for name in self.sources}
        return shares

    @override
    def continued(self, record: RunManifest, step: int, rows: int) -> Self:
        if not self.sources:
            return self
        stages = continued_stages(self.config, self.sources, record, step, rows)
        return replace(self, stages=stages)

    @override
    def prepare_model(self, model: nn.Module) -> None:
        # What is trained next to an adapter is chosen when the adapter is added.
        if self.config.trainable == "embeddings" and self.config.adapter is None:
            freeze_all_but_embeddings(self.family, self.objective, model)

    @property
    def eval_split(self) -> str:
        """Name of the corpus's split to evaluate on."""
        return "validation" if self.stream is None else "train"

    def eval_split_of(self, source: str) -> str:
        """Return the name of the split to evaluate on of a source's corpus."""
        return "train" if source in self.source_streams else "validation"

    @override
    def with_workers(self, workers: int) -> Self:
        if self.stream is not None:
            return replace(self, stream=replace(self.stream, workers=workers))
        if not self.source_streams:
            return super().with_workers(workers)
        streams = {}
        for name, stream in self.source_streams.items():
            streams[name] = replace(stream, workers=workers)
        return replace(self, source_streams=streams)

    @override
    def passes(self, steps: int) -> float | None:
        if self.stream is not None or self.source_streams:
            return None
        return steps * self.config.global_batch_tokens / self.train_tokens

    @override
    def plan(self) -> dict[str, str]:
        config = self.config
        steps = (
            f"{config.max_steps:,} of {config.global_batch_size:,} rows of "
            f"{config.seq_len:,} tokens"
        )
        passes = self.passes(config.max_steps)
        if passes is not None:
            steps = f"{steps}, {passes:,.3g} passes over the data"
        data = self._sources_plan() if self.sources else self._corpus_plan()
        return {**data, "steps": steps}

    def _corpus_plan(self) -> dict[str, str]:
        """Return what a person should know of a corpus, or of a stream, before training."""
        from zoo.data.tokenizer import corpus_tokenizer_description

        splits = self.corpus.record.splits
        eval_tokens = splits[self.eval_split].tokens
        source = ", ".join(self.config.data.paths) or "the corpus of the package"
        size = f"{splits['train'].tokens:,} tokens"
        if self.stream is not None:
            size = self.stream.description()
        return {
            "data": f"{source}: {size}, {eval_tokens:,} to evaluate",
            "tokenizer": corpus_tokenizer_description(self.corpus),
        }

    def _sources_plan(self) -> dict[str, str]:
        """Return what a person should know of each source before training."""
        shares = self._run_shares()
        passes = self.source_passes(self.config.max_steps)
        lines = {}
        for name, corpus in self.sources.items():
            splits = corpus.record.splits
            if name in self.source_streams:
                data = self.source_streams[name].description()
            else:
                data = f"{passes[name]:.3g} passes over {splits['train'].tokens:,} tokens"
            eval_tokens = splits[self.eval_split_of(name)].tokens
            text = f"{shares[name]:.2%} of the tokens, {data}, {eval_tokens:,} to evaluate"
            if corpus.record.normalization is not None:
                text = f"{text}; {corpus.record.normalization.description()}"
            lines[f"source {name}"] = text
        return {**lines, "tokenizer": self.tokenizer.description()}

    def _run_shares(self) -> dict[str, float]:
        """Return the share of each source in the tokens of the whole run."""
        tokens = tokens_by_source(self.config, self.stages, self.config.max_steps)
        total = sum(tokens.values())
        return {name: tokens.get(name, 0.0) / total for name in self.sources}

    def source_passes(self, steps: int) -> dict[str, float]:
        """Return the number of passes over each source that a number of steps makes.

        Streams, whose sizes are not known, have none.
        """
        tokens = tokens_by_source(self.config, self.stages, steps)
        passes = {}
        for name, corpus in self.sources.items():
            if name in self.source_streams:
                continue
            passes[name] = tokens.get(name, 0.0) / corpus.record.splits["train"].tokens
        return passes

    @override
    def warnings(self) -> list[str]:
        warnings = []
        for name, passes in self.source_passes(self.config.max_steps).items():
            if passes > MANY_PASSES:
                warnings.append(
                    f"the run reads the source {name} {passes:,.3g} times: beyond "
                    f"{MANY_PASSES:g}, repeated text teaches little; give it a lower weight, or "
                    "more text"
                )
        return warnings

    @override
    def manifest_fields(self) -> dict[str, Any]:
        if not self.sources:
            record = source_record(self.corpus)
            return {
                "corpus": record.corpus,
                "corpus_digest": record.corpus_digest,
                "data_order": self.data_order,
                "corpus_contents": record.corpus_contents,
                "stream": None if self.stream is None else self.stream.record(),
            }
        fields: dict[str, Any] = {
            "data_order": self.data_order,
            "sources": self._source_records(),
            "mixture": list(self.stages),
        }
        if self.init is None:
            fields["tokenizer"] = self.tokenizer.info
        return fields

    def _source_records(self) -> dict[str, TextSourceRecord]:
        records = {}
        for name, corpus in self.sources.items():
            records[name] = source_record(corpus, self.source_streams.get(name))
        return records

    @override
    def run_files(self) -> dict[str, bytes]:
        """With sources also the tokenizer, which may have been trained on all of them."""
        if self.sources and self.init is None:
            return {TOKENIZER: self.tokenizer.json}
        return super().run_files()

    @override
    def input_digests(self) -> dict[str, str]:
        digests = super().input_digests()
        if self.stream is not None:
            digests["the stream"] = self.stream.contents_key()
        if not self.sources:
            return {**digests, "the corpus": source_record(self.corpus).corpus_contents}
        for name, corpus in self.sources.items():
            digests[f"the source {name}"] = source_record(corpus).corpus_contents
        for name, stream in self.source_streams.items():
            digests[f"the stream {name}"] = stream.contents_key()
        return digests

    @override
    def require_same_data(self, run: Path, record: RunManifest) -> None:
        if bool(self.sources) != bool(record.sources):
            raise UsageError(
                f"{run} began {'with' if record.sources else 'without'} data.sources",
                "resume or continue it so, or begin another run with --init-from",
            )
        corpora = {"": self.corpus, **self.sources}
        if self.sources:
            del corpora[""]
        for name, corpus in corpora.items():
            recorded: Any = record
            if name:
                recorded = (record.sources or {}).get(name)
            if recorded is None:  # A source that is added to a run that continues another one.
                continue
            # Held-out documents may be the first ones of a stream, whose errors name the file.
            if name:
                self._require_same_stream(name, run, recorded.stream)
            elif self.stream is not None:
                require_same_shards(self.stream, run, record.stream)
            source = source_record(corpus)
            has_same_digest = recorded.corpus_digest == source.corpus_digest
            # A corpus that was built again of texts that have moved has the same contents.
            has_same_contents = recorded.corpus_contents == source.corpus_contents
            if not has_same_digest and not has_same_contents:
                raise UsageError(
                    f"the corpus in {corpus.path} is not the one that {run} began with",
                    "put the texts back as they were, or begin another run",
                )

    def _require_same_stream(self, name: str, run: Path, began: StreamRecord | None) -> None:
        """Check that a source is a stream if it was one when a run began, of the same files."""
        stream = self.source_streams.get(name)
        if (stream is None) != (began is None):
            how = "a corpus" if began is None else "a stream"
            raise UsageError(
                f"{run} began with the source {name} as {how}",
                f"set data.sources.{name}.streaming as it was, or begin another run",
            )
        if stream is not None:
            require_same_shards(stream, run, began)

    @override
    def training_record(self, run: Path, best: tuple[float, int] | None) -> dict[str, Any]:
        if self.stream is not None:
            return {"stream": msgspec.to_builtins(self.stream.record())}
        if self.sources:
            return {"sources": self._sources_record()}
        splits = self.corpus.record.splits
        return {
            "corpus": {name: msgspec.to_builtins(split.files) for name, split in splits.items()}
        }

    def _sources_record(self) -> dict[str, Any]:
        """Return share, passes and files of each source, for the manifest of a final model."""
        passes = self.source_passes(self.config.max_steps)
        sources: dict[str, Any] = {}
        for name, share in self._run_shares().items():
            if name in self.source_streams:
                stream_record = msgspec.to_builtins(self.source_streams[name].record())
                sources[name] = {"share": round(share, 6), "stream": stream_record}
                continue
            files = {}
            for split, part in self.sources[name].record.splits.items():
                files[split] = msgspec.to_builtins(part.files)
            epochs = round(passes[name], 4)
            sources[name] = {"share": round(share, 6), "epochs": epochs, "corpus": files}
        return sources


def freeze_all_but_embeddings(family: Family, objective: Objective, model: nn.Module) -> None:
    """Freeze all weights except those with a row for each token."""
    trained_ids = set()
    for network in objective.models_to_save(model).values():
        for name in vocabulary_tensors(family, network.config, network.head):
            trained_ids.add(id(network.module.get_parameter(name)))
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trained_ids)


def pretrain_setup(
    config: TrainConfig,
    *,
    offline: bool = False,
    check_contents: bool = True,
    resumed: tuple[Path, RunManifest] | None = None,
) -> PretrainSetup:
    """Open or build the corpus, verify it, and make the model configuration and the objective."""
    from zoo.data.corpus import TRAIN
    from zoo.data.verify import require_intact
    from zoo.io.digests.verified import file_blake3
    from zoo.tokenizers.tokenizer_json import parse
    from zoo.training.stages import first_stage

    family = get_family(config.family)
    loggers = select_loggers(config.report_to)
    require_pretrained(config)
    init = _pretrained_init(config, family, resumed, offline=offline)
    base_config = family.sizes()[config.size] if init is None else init.config
    objective_class = objective_type(family, base_config, config.objective)
    if init is not None:
        _require_modules(init, objective_class, family)
    if resumed is None:
        _require_tokenizer_to_train(config, init)
    data = _open_data(config, family, init, objective_class, resumed, offline=offline)
    corpus = data.corpus
    train_tokens = 0
    for opened_corpus in data.sources.values() or [corpus]:
        require_intact(opened_corpus, file_blake3, contents=check_contents)
        if init is not None:
            require_known_tokens(init, opened_corpus, config.data)
        train_tokens += opened_corpus.record.splits[TRAIN].tokens
    if isinstance(config, EpochsConfig):
        config = config.resolved(train_tokens)
    tokenizer = parse(corpus.tokenizer_json, corpus.path / TOKENIZER)
    model_config = adapt_model_config(family, base_config, config, corpus, tokenizer)
    vocabulary = TokenizerView(
        tokenizer, corpus.record.tokenizer, model_config.vocab_size, family.starts_word
    )
    check_memory(family, model_config, objective_class.head)
    # The final model is written by these rules.
    check_rules_of_plugin(family, model_config, objective_class.head)
    options = parse_options(objective_class.options_type, config.objective_args, config.objective)
    if init is not None:
        _refuse_from_scratch(objective_class, options)
    objective = objective_class(vocabulary, model_config, config.seq_len, options)
    if data.stream is not None or data.source_streams:
        obstacle = objective.stream_obstacle()
        if obstacle is not None:
            raise UsageError(obstacle, "leave it out, or leave --streaming out")
    stages: list[MixtureStage] = []
    if resumed is not None and resumed[1].mixture is not None:
        stages = resumed[1].mixture
    elif data.sources:
        stages = new_stages(config, data.sources)
    return PretrainSetup(
        config=config,
        family=family,
        model_config=model_config,
        corpus=corpus,
        stream=data.stream,
        objective=objective,
        loggers=loggers,
        warmup_objective=_warmup_objective(objective, config.seq_len_warmup, family, vocabulary),
        first_config=first_stage(family, model_config, config.seq_len_warmup),
        data_order=DEFAULT_ORDER if resumed is None else resumed[1].data_order,
        init=init,
        sources=data.sources,
        source_streams=data.source_streams,
        stages=stages,
    )


class _OpenData(NamedTuple):
    """What a run is trained on."""

    corpus: "Corpus"  # The corpus, with a stream its held-out documents, or the first source's.
    sources: "dict[str, Corpus]"  # Source -> its corpus; empty without sources.
    stream: StreamData | None  # What is read without a corpus, or ``None``.
    source_streams: dict[str, StreamData]  # The same of each source that is a stream.


def _open_data(
    config: TrainConfig,
    family: Family,
    init: PretrainedInit | None,
    objective_class: type[Objective],
    resumed: tuple[Path, RunManifest] | None,
    *,
    offline: bool,
) -> _OpenData:
    """Open a stream, or the corpora of a run, built now if the cache does not have them."""
    stream_names = config.data.streamed_sources()
    if config.data.streaming or stream_names:
        if isinstance(config, EpochsConfig):
            raise UsageError(
                "the number of tokens of a stream is not known, so that epochs have no steps",
                "give --max-steps in place of --epochs",
            )
        if objective_class.stateful:
            raise UsageError(
                f"rows of {objective_class.name} continue in the next step, and a stream shuffles "
                "them",
                "leave --streaming out",
            )
    data = config.data
    if data.streaming and not data.sources:
        tokenizer = choose_tokenizer(config, family, init, offline=offline)
        stream, held_out = open_stream(
            data,
            require_tokenizer(tokenizer),
            seed=config.seed,
            paths=data.paths,
            eval_paths=data.eval_paths,
        )
        return _OpenData(held_out, {}, stream, {})
    if not data.sources:
        return _OpenData(open_corpus(config, family, init, offline=offline), {}, None, {})
    if objective_class.stateful:
        raise UsageError(
            f"rows of {objective_class.name} continue in the next step, and cannot be mixed with "
            "those of other sources",
            "--train without names reads all texts as one corpus",
        )
    tokenizer = choose_tokenizer(config, family, init, resumed, offline=offline)
    corpora, streams = open_sources(data, tokenizer, seed=config.seed)
    return _OpenData(next(iter(corpora.values())), corpora, None, streams)


def _pretrained_init(
    config: TrainConfig,
    family: Family,
    resumed: tuple[Path, RunManifest] | None,
    *,
    offline: bool,
) -> PretrainedInit | None:
    """Return the pretrained model that a run starts from, if any."""
    init_from = config.init_from
    if init_from is None:
        return None
    if resumed is None or resumed[1].init_from is None:
        return PretrainedInit.resolve(init_from, family, offline=offline)
    run, manifest = resumed
    assert manifest.init_from is not None
    if config.adapter is not None:
        return PretrainedInit.reopen(manifest.init_from, init_from, family, offline=offline)
    return PretrainedInit.from_run(run, manifest.init_from, init_from, family)


def _require_modules(
    init: PretrainedInit, objective_class: type[Objective], family: Family
) -> None:
    """Check that the pretrained model has the modules of the objective, before anything is built.

    An objective that trains several models checks them when their weights are loaded.
    """
    has_one_model = objective_class.models_to_save is Objective.models_to_save
    if not has_one_model or "model" not in init.checkpoints:
        return
    checkpoint = init.checkpoints["model"]
    allowed = init.init_config.new_modules

    def remaining_modules(head: str) -> list[str]:
        modules = missing_modules(checkpoint, head)
        return [name for name in modules if not any(inside(name, part) for part in allowed)]

    modules = remaining_modules(objective_class.head)
    if not modules:
        return
    error = missing_modules_error(init.init_config.model, modules, objective_class.name, allowed)
    simpler_objective, plus, _ = objective_class.name.partition("+")
    if plus:
        simpler_class = objective_type(family, checkpoint.config, simpler_objective)
        if not remaining_modules(simpler_class.head):
            error.hint = f"use --objective {simpler_objective}, or {error.hint}"
    raise error


def _warmup_objective(
    objective: Objective, warmup: SeqLenWarmup | None, family: Family, vocabulary: TokenizerView
) -> Objective | None:
    """Return the objective of a sequence-length warm-up, whose model and loss are the run's."""
    if warmup is None:
        return None
    warmup_class = type(objective)
    options = objective.options
    if warmup.objective is not None:
        warmup_class = objective_type(family, objective.config, warmup.objective)
        options = parse_options(warmup_class.options_type, warmup.objective_args, warmup.objective)
    if warmup_class.stateful:
        raise UsageError(
            f"rows of {warmup_class.name} continue in the next step, and have one length",
            "--set seq_len_warmup=null",
        )
    for method in ("model", "forward", "loss"):
        if getattr(warmup_class, method) is not getattr(type(objective), method):
            raise UsageError(
                f"seq_len_warmup.objective {warmup_class.name} has another {method} than "
                f"{objective.name}",
                "begin another run with --init-from the model of a first one",
            )
    return warmup_class(vocabulary, objective.config, warmup.seq_len, options)


def _refuse_from_scratch(objective_class: type[Objective], options: Any) -> None:
    """Check that no option would replace the pretrained weights."""
    for name in objective_class.from_scratch_options:
        if getattr(options, name):
            raise UsageError(
                f"objective_args.{name} is {getattr(options, name)}, which would replace the "
                "pretrained weights",
                "leave it out, or leave out init_from to begin with new weights",
            )


def open_corpus(
    config: TrainConfig, family: Family, init: PretrainedInit | None, *, offline: bool
) -> "Corpus":
    """Return the corpus of a run, built now if the cache does not have it."""
    from zoo.data.cache import cached_corpus

    data = config.data
    tokenizer = choose_tokenizer(config, family, init, offline=offline)
    return cached_corpus(data.paths, tokenizer, reader=data.reader, eval_paths=data.eval_paths)


def choose_tokenizer(
    config: TrainConfig,
    family: Family,
    init: PretrainedInit | None,
    resumed: tuple[Path, RunManifest] | None = None,
    *,
    offline: bool,
) -> "ExistingTokenizer | TokenizerToTrain":
    """Return the tokenizer that reads the texts of a run, or the settings of one to train.

    A run that has begun may have a tokenizer of its own.

    Args:
        config: configuration of the run.
        family: family of the model.
        init: pretrained model that the run starts from, or ``None``.
        resumed: directory and manifest of a run that has begun, or ``None``.
        offline: make no network connection.
    """
    from zoo.data.tokenizer import TRAIN, ExistingTokenizer, TokenizerToTrain, load_tokenizer
    from zoo.tokenizers.tokenizer_json import read_checked

    data = config.data
    if init is not None and data.tokenizer is None:
        return init.own_tokenizer(family)
    if data.tokenizer not in (None, TRAIN):
        return load_tokenizer(str(data.tokenizer), family, offline=offline)
    if resumed is not None:
        run, manifest = resumed
        if manifest.tokenizer is not None:
            return ExistingTokenizer(read_checked(run / TOKENIZER), manifest.tokenizer)
    vocab_size = config.vocab_size or family.sizes()[config.size].vocab_size
    return TokenizerToTrain.for_family(
        family,
        vocab_size=vocab_size,
        lowercase=data.lowercase,
        strip_accents=data.strip_accents,
    )


def _require_tokenizer_to_train(config: TrainConfig, init: PretrainedInit | None) -> None:
    """Check that the normalization of a trained tokenizer is not set for another one."""
    from zoo.data.corpus import is_corpus
    from zoo.data.tokenizer import TRAIN

    data = config.data
    if not data.lowercase and not data.strip_accents:
        return
    paths = list(data.paths)
    for source in (data.sources or {}).values():
        paths += source.paths
    has_corpus = any(is_corpus(Path(path)) for path in paths)
    is_default_trained = data.tokenizer is None and init is None
    if has_corpus or not (is_default_trained or data.tokenizer == TRAIN):
        setting = "lowercase" if data.lowercase else "strip_accents"
        raise UsageError(
            f"data.{setting} is for a tokenizer to train, and the run has one",
            f"leave it out, or give texts and --tokenizer {TRAIN}",
        )


def build_dataset(
    setup: PretrainSetup, split_name: str, min_rows: int, *, warmup: bool = False
) -> Any:
    """Pack a split of the corpus into rows, or the splits of all sources.

    Of a source that is a stream, both splits are its held-out documents.
    """
    objective = setup.objective
    if warmup and setup.warmup_objective is not None:
        objective = setup.warmup_objective
    if not setup.sources:
        return _corpus_dataset(setup, setup.corpus, objective, split_name, min_rows)
    datasets = {}
    for name, corpus in setup.sources.items():
        source_split = setup.eval_split_of(name) if name in setup.source_streams else split_name
        try:
            datasets[name] = _corpus_dataset(setup, corpus, objective, source_split, 1)
        except UsageError as error:
            raise UsageError(f"the source {name}: {error.what}", error.hint) from error
    return MixedDataset(datasets)


def _corpus_dataset(
    setup: PretrainSetup, corpus: "Corpus", objective: Objective, split_name: str, min_rows: int
) -> ExampleDataset:
    """Pack a split of one corpus into rows."""
    split = corpus.split(split_name, order=setup.data_order)
    rows = objective.dataset(split, setup.config.seed)
    if len(rows) < min_rows:
        raise UsageError(
            f"the {split_name} split in {corpus.path} fills {len(rows)} rows of "
            f"{objective.length} tokens, and a batch has {min_rows}",
            "use more text, a lower --global-batch-tokens, or a smaller length",
        )
    most = setup.family.max_decoder_len(setup.model_config)
    if isinstance(rows, Seq2SeqDataset) and most is not None and rows.decoder_length > most:
        raise UsageError(
            f"targets of sources of {objective.length} tokens take {rows.decoder_length}, and the "
            f"decoder has {most} positions",
            f"--set seq_len={objective.length * most // rows.decoder_length}, or fewer",
        )
    return rows


def train_dataloader(
    setup: PretrainSetup, dist: DistContext, *, completed_steps: int = 0
) -> BatchLoader:
    """Return the loader of the training split."""
    warmup_steps = setup.config.seq_len_warmup_steps
    warmup_loader = None
    # Rows of a sequence-length warm-up that is over are not packed again.
    if setup.warmup_objective is not None and completed_steps < warmup_steps:
        warmup_loader = _make_loader(setup, dist, setup.warmup_objective, warmup=True)
    return _make_loader(
        setup, dist, setup.objective, first_step=warmup_steps, warmup_loader=warmup_loader
    )


def _make_loader(
    setup: PretrainSetup,
    dist: DistContext,
    objective: Objective,
    *,
    warmup: bool = False,
    first_step: int = 0,
    warmup_loader: BatchLoader | None = None,
) -> BatchLoader:
    config = setup.config
    rows = config.batch_size(objective.length)
    collate: Collate = objective.collate
    # Terms of a wrapper count all positions, so that none are added for it.
    if config.compile and setup.collate_wrapper is None:
        collate = partial(collate_static, objective)
    options: dict[str, Any] = {
        "seed": config.seed,
        "global_batch_size": rows,
        "micro_batch_size": config.micro_batch_size(objective.length),
        "rank": dist.rank,
        "world_size": dist.world_size,
        "first_step": first_step,
        "warmup_loader": warmup_loader,
        "collate": collate,
        "collate_wrapper": setup.collate_wrapper,
        "device": dist.device,
    }
    if setup.stream is not None:
        held_out = build_dataset(setup, setup.eval_split, 1, warmup=warmup)
        stream_rows = setup.stream.rows(objective, held_out, config.seed)

        def make_lane_order(first_row: int) -> RowOrder:
            return LaneOrder(len(stream_rows.lanes), [StepRows(first_row, rows)])

        return StreamLoader(
            objective,
            stream_rows,
            streams={LANES: stream_rows},
            make_order=make_lane_order,
            **options,
        )
    dataset = build_dataset(setup, "train", rows, warmup=warmup)
    if setup.source_streams:
        mixed_rows, streams = _with_streams(setup, objective, dataset)
        make_order = partial(setup.row_order, mixed_rows, objective)
        return StreamLoader(
            objective, mixed_rows, streams=streams, make_order=make_order, **options
        )
    order = setup.row_order(dataset, objective)
    return BatchLoader(objective, dataset, order=order, **options)


def _with_streams(
    setup: PretrainSetup, objective: Objective, dataset: MixedDataset
) -> tuple[MixedDataset, dict[str, StreamRows]]:
    """Return the rows of all sources, and the streams among them.

    Args:
        setup: setup of the run.
        objective: the objective that packs the rows.
        dataset: the rows of all sources, with the held-out ones in place of the streams.
    """
    streams = {}
    datasets = dict(dataset.datasets)
    for name, stream in setup.source_streams.items():
        held_out = dataset.datasets[name]
        assert isinstance(held_out, ExampleDataset), "held-out documents are a corpus"
        stream_rows = stream.rows(objective, held_out, stream.source.seed)
        datasets[name] = stream_rows
        streams[f"{LANES}.{name}"] = stream_rows
    return MixedDataset(datasets), streams


def eval_batches(setup: PretrainSetup, dist: DistContext) -> list[Batch]:
    """Return this process's batches of an evaluation, always with rows of full length.

    A run with sources evaluates rows of each, in batches of their own.
    """
    dataset = build_dataset(setup, setup.eval_split, 1)
    if not isinstance(dataset, MixedDataset):
        return _eval_batches_of(setup, dataset, dist)
    batches = []
    for name, source_dataset in dataset.datasets.items():
        assert isinstance(source_dataset, ExampleDataset), "streams are evaluated on a corpus"
        for batch in _eval_batches_of(setup, source_dataset, dist):
            sources = {name: SourceCounts(batch.rows, batch.counts)}
            batches.append(replace(batch, sources=sources))
    return batches


def _eval_batches_of(
    setup: PretrainSetup, dataset: ExampleDataset, dist: DistContext
) -> list[Batch]:
    rows = min(len(dataset), setup.config.eval_sequences)
    rank = dist.rank
    world_size = dist.world_size
    if rows % world_size:  # Each process evaluates all rows.
        rank = 0
        world_size = 1
    loader = BatchLoader(
        setup.objective,
        dataset,
        seed=setup.config.seed,
        global_batch_size=rows,
        micro_batch_size=setup.config.micro_batch_size(setup.config.seq_len),
        rank=rank,
        world_size=world_size,
        purpose="validation",
        collate_wrapper=setup.collate_wrapper,
        order=setup.row_order(dataset, setup.objective),
    )
    return loader.make_batches(0)
