"""Setup of a run from its configuration: corpus, tokenizer, model configuration, objective."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.families.recipe import SeqLenWarmup
from zoo.objectives import objective_type
from zoo.objectives.base import Objective
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.objectives.options import parse_options
from zoo.plugins import get_family
from zoo.training.base import RunSetup
from zoo.training.config.schema import DROPOUT, TrainConfig
from zoo.training.logging.selection import select_loggers
from zoo.training.state.pretrained import PretrainedInit
from zoo.training.state.run_manifest import RunManifest

if TYPE_CHECKING:
    from zoo.data.corpus import Corpus
    from zoo.data.tokenizer import ExistingTokenizer
    from zoo.objectives.base import Batch
    from zoo.tokenizers.info import TokenizerInfo
    from zoo.training.dataloader import BatchLoader
    from zoo.training.distributed.context import DistContext


@dataclass(frozen=True, kw_only=True)
class TrainSetup(RunSetup):
    """Corpus, model configuration and objective of a pretraining run, without devices.

    Attributes:
        corpus: the tokenized corpus.
        objective: the pretraining objective.
        warmup_objective: the objective with the shorter rows of a sequence-length warm-up.
    """

    command: ClassVar[str] = "pretrain"
    config: TrainConfig
    corpus: "Corpus"
    objective: Objective
    warmup_objective: Objective | None = None

    @property
    def tokenizer(self) -> "ExistingTokenizer":
        """See ``RunSetup``."""
        from zoo.data.tokenizer import ExistingTokenizer

        return ExistingTokenizer(self.corpus.tokenizer_json(), self.corpus.record.tokenizer)

    def train_dataloader(self, dist: "DistContext", *, completed_steps: int = 0) -> "BatchLoader":
        """See ``RunSetup``."""
        from zoo.training.dataloader import train_dataloader

        return train_dataloader(self, dist, completed_steps=completed_steps)

    def eval_batches(self, dist: "DistContext") -> "list[Batch]":
        """See ``RunSetup``."""
        from zoo.training.dataloader import eval_batches

        return eval_batches(self, dist)

    def manifest_fields(self) -> dict[str, Any]:
        """See ``RunSetup``."""
        from zoo.data.corpus import MANIFEST
        from zoo.io.digests.files import hash_file

        path = self.corpus.path
        digest = hash_file(path / MANIFEST).blake3
        return {"corpus": str(path.resolve()), "corpus_digest": digest}

    def require_same_data(self, run: Path, record: RunManifest) -> None:
        """See ``RunSetup``."""
        if record.corpus_digest != self.manifest_fields()["corpus_digest"]:
            raise UsageError(
                f"the corpus in {self.corpus.path} is not the one that {run} began with",
                "put the texts back as they were, or begin another run",
            )

    def training_record(self, run: Path, best: tuple[float, int] | None) -> dict[str, Any]:
        """See ``RunSetup``."""
        splits = self.corpus.record.splits
        return {
            "corpus": {name: msgspec.to_builtins(split.files) for name, split in splits.items()}
        }


def build_setup(
    config: TrainConfig,
    *,
    offline: bool = False,
    init: PretrainedInit | None = None,
    check_contents: bool = True,
) -> TrainSetup:
    """Open or build the corpus, verify it, and make the model configuration and the objective.

    Args:
        config: configuration of the run.
        offline: make no network connection.
        init: pretrained weights of a run that is resumed.
        check_contents: verify token ids and offsets of the corpus, besides the digests of files.

    Raises:
        UsageError: settings are inconsistent, a logger is unknown, or the corpus is too small.
        SourceError, VerificationError: a file is missing or damaged.
    """
    from zoo.checkpoint import TOKENIZER
    from zoo.data.verify import require_intact
    from zoo.io.digests.verified import file_blake3
    from zoo.tokenizers.tokenizer_json import parse

    family, loggers = get_family(config.family), select_loggers(config.report_to)
    if config.init_from is not None and init is None:
        init = PretrainedInit.resolve(config.init_from, family, offline=offline)
    shape = family.sizes()[config.size] if init is None else init.config
    kind = objective_type(family, shape, config.objective)
    corpus = open_corpus(config, family, init, offline=offline)
    require_intact(corpus, file_blake3, contents=check_contents)
    tokenizer = parse(corpus.tokenizer_json(), corpus.path / TOKENIZER)
    model_config = adapt_model_config(family, shape, config, corpus, tokenizer)
    vocabulary = TokenizerView(
        tokenizer, corpus.record.tokenizer, model_config.vocab_size, family.starts_word
    )
    check_memory(family, model_config, kind.head)
    options = parse_options(kind.options_type, config.objective_args, config.objective)
    if init is not None:
        _refuse_from_scratch(kind, options)
    objective = kind(vocabulary, model_config, config.seq_len, options)
    return TrainSetup(
        config=config,
        family=family,
        model_config=model_config,
        corpus=corpus,
        objective=objective,
        loggers=loggers,
        warmup_objective=_warmup_objective(objective, config.seq_len_warmup, family, vocabulary),
        init=init,
    )


def _warmup_objective(
    objective: Objective, warmup: SeqLenWarmup | None, family: Family, vocabulary: TokenizerView
) -> Objective | None:
    """Return the objective of a sequence-length warm-up, whose model and loss are the run's."""
    if warmup is None:
        return None
    kind, options = type(objective), objective.options
    if warmup.objective is not None:
        kind = objective_type(family, objective.config, warmup.objective)
        options = parse_options(kind.options_type, warmup.objective_args, warmup.objective)
    if kind.stateful:
        raise UsageError(
            f"rows of {kind.name} continue in the next step, and have one length",
            "--set seq_len_warmup=null",
        )
    for method in ("model", "forward", "loss"):
        if getattr(kind, method) is not getattr(type(objective), method):
            raise UsageError(
                f"seq_len_warmup.objective {kind.name} has another {method} than {objective.name}",
                "begin another run with --init-from the model of a first one",
            )
    return kind(vocabulary, objective.config, warmup.seq_len, options)


def _refuse_from_scratch(kind: type[Objective], options: Any) -> None:
    """Check that no option would replace the pretrained weights.

    Raises:
        UsageError: one would.
    """
    for name in kind.from_scratch_options:
        if getattr(options, name):
            raise UsageError(
                f"objective_args.{name} is {getattr(options, name)}, which would replace the "
                "pretrained weights",
                "leave it out, or leave out init_from to begin with new weights",
            )


def check_memory(family: Family, config: Config, head: str) -> None:
    """Check, before anything is allocated, that the weights fit into the machine's memory.

    Args:
        family: family of the model.
        config: configuration of the model.
        head: name of the head.

    Raises:
        UsageError: the weights need more memory than the machine has.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    count = sum(math.prod(entry.shape) for entry in family.weights(config, head).entries())
    if 4 * count > memory:
        raise UsageError(
            f"{family.name} has {count:,} parameters with these settings, which take "
            f"{4 * count / 2**30:,.0f} GiB, and this machine has {memory / 2**30:,.0f} GiB",
            "give a smaller config",
        )


def open_corpus(
    config: TrainConfig, family: Family, origin: PretrainedInit | None, *, offline: bool
) -> "Corpus":
    """Return the corpus of a run, built now if the cache does not have it.

    Args:
        config: configuration of the run.
        family: family of the model.
        origin: pretrained model that the run starts from, or ``None``.
        offline: make no network connection.

    Raises:
        UsageError, SourceError, VerificationError: see ``zoo.data.build.build``.
    """
    from zoo.data.corpus_cache import cached_corpus
    from zoo.data.tokenizer import TRAIN, TokenizerToTrain, load_tokenizer

    data, reused = config.data, origin is not None and config.data.tokenizer is None
    if reused:
        assert origin is not None
        tokenizer: Any = origin.own_tokenizer(family)
    elif data.tokenizer in (None, TRAIN):
        size = config.vocab_size or family.sizes()[config.size].vocab_size
        tokenizer = TokenizerToTrain.for_family(family, vocab_size=size)
    else:
        tokenizer = load_tokenizer(str(data.tokenizer), family, offline=offline)
    corpus = cached_corpus(data.paths, tokenizer, reader=data.reader, eval_paths=data.eval_paths)
    if reused and corpus.record.tokenizer_digest != tokenizer.settings()["blake3"]:
        check_same_vocab(tokenizer, corpus)
    return corpus


def check_same_vocab(tokenizer: Any, corpus: "Corpus") -> None:
    """Check that a prebuilt corpus has the token ids of a model's tokenizer.

    Raises:
        UsageError: a token has another id.
    """
    from tokenizers import Tokenizer

    model_vocab, corpus_vocab = (
        Tokenizer.from_str(definition.decode()).get_vocab()
        for definition in (tokenizer.json, corpus.tokenizer_json())
    )
    if model_vocab != corpus_vocab:
        odd = min(token for token, _ in model_vocab.items() ^ corpus_vocab.items())
        raise UsageError(
            f"the corpus in {corpus.path} has another tokenizer than the model: {odd!r} is "
            f"{corpus_vocab.get(odd, 'no token')}, not {model_vocab.get(odd, 'any')}",
            "build it with the model's, or say with --tokenizer that it is meant",
        )


def adapt_model_config(
    family: Family, config: Any, train_config: TrainConfig, corpus: "Corpus", tokenizer: Any
) -> Config:
    """Return the model configuration with the run's overrides and the tokenizer's vocabulary.

    The configuration of a pretrained model is kept, except for dropout.

    Args:
        family: family of the model.
        config: configuration of the model's size, or of the pretrained model.
        train_config: configuration of the run.
        corpus: the tokenized corpus.
        tokenizer: tokenizer of the corpus.

    Raises:
        UsageError: a field does not exist, or its value contradicts the corpus or the model.
    """
    known = list(config.__struct_fields__)
    for name in train_config.config:
        if name not in known:
            raise UsageError(
                f"{family.name} has no setting config.{name}",
                did_you_mean(name, known) or f"there are {', '.join(known)}",
            )
    derived = {
        "vocab_size": corpus.record.vocab_size,
        **special_ids(config, corpus.record.tokenizer, tokenizer),
    }
    if train_config.init_from is not None:
        spelled = family.text_tokenizer(config) is not None
        derived = check_init_overrides(config, train_config, derived, spelled=spelled)
    try:
        tree = {**msgspec.to_builtins(config), **derived, **train_config.config}
        fitted: Config = msgspec.convert(tree, type(config))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{family.name} {train_config.size}, config: {error}") from error
    spelled = objective_type(family, fitted, train_config.objective).char_inputs
    if fitted.vocab_size < corpus.record.vocab_size and not spelled:
        raise UsageError(
            f"config.vocab_size is {fitted.vocab_size}, and the corpus in {corpus.path} has "
            f"tokens up to {corpus.record.vocab_size - 1}",
            "leave it out, or build the corpus with a smaller tokenizer",
        )
    longest = getattr(fitted, "max_positions", train_config.seq_len)
    if longest < train_config.seq_len:
        raise UsageError(
            f"seq_len is {train_config.seq_len}, and the model has {longest} positions",
            f"--set seq_len={longest}, or --set config.max_positions={train_config.seq_len}",
        )
    return fitted


def check_init_overrides(
    config: Any, train_config: TrainConfig, derived: Mapping[str, Any], *, spelled: bool
) -> dict[str, Any]:
    """Check that settings agree with the pretrained model that the run starts from.

    Args:
        config: configuration of the pretrained model.
        train_config: configuration of the run.
        derived: values of the fields that the corpus's tokenizer determines. They are compared only
            with ``--tokenizer``, and ``vocab_size`` never: a smaller vocabulary is valid.
        spelled: whether the model reads characters, so that any vocabulary is valid.

    Returns:
        Fields to change: none, except the vocabulary of a model that reads characters.

    Raises:
        UsageError: a field has another value in the model.
    """
    assert train_config.init_from is not None
    reused, free = train_config.data.tokenizer is None, {"vocab_size"} if spelled else set()
    required = {} if reused else {**derived, "vocab_size": config.vocab_size}
    for name, value in {**required, **train_config.config}.items():
        model = msgspec.to_builtins(getattr(config, name))
        if value != model and name not in free and not name.endswith(DROPOUT):
            raise UsageError(
                f"config.{name} would be {value}, and {train_config.init_from.model} has {model}",
                "leave it out" if name in train_config.config else "give another --tokenizer",
            )
    return {} if reused else {name: derived[name] for name in free}


def special_ids(config: Any, info: "TokenizerInfo", tokenizer: Any) -> dict[str, int]:
    """Return the values of a configuration's special-token fields for a tokenizer."""
    ids = {}
    for role, token in info.special.items():
        name = f"{role}_token_id"
        if name in config.__struct_fields__:
            ids[name] = tokenizer.token_to_id(token)
    return ids


def build_dataset(
    setup: TrainSetup, split_name: str, min_rows: int, *, warmup: bool = False
) -> Any:
    """Pack a split of the corpus into rows.

    Args:
        setup: setup of the run.
        split_name: ``train`` or ``validation``.
        min_rows: number of rows of a batch.
        warmup: use the shorter rows of the sequence-length warm-up.

    Raises:
        UsageError: the split has less than one batch.
    """
    split = setup.corpus.split(split_name)
    objective = (
        setup.warmup_objective if warmup and setup.warmup_objective is not None else setup.objective
    )
    rows = objective.dataset(split, setup.config.seed)
    if len(rows) < min_rows:
        raise UsageError(
            f"the {split_name} split in {setup.corpus.path} fills {len(rows)} rows of "
            f"{objective.length} tokens, and a batch has {min_rows}",
            "use more text, a lower --global-batch-tokens, or a smaller length",
        )
    return rows
