"""From settings to all that a run needs: corpus, tokenizer, configuration, objective."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.config import Config
from zoo.errors import UsageError, nearest
from zoo.family import Family
from zoo.objectives import objective_type
from zoo.objectives.base import Objective, read_options
from zoo.objectives.vocabulary import Vocabulary
from zoo.plugins import get_family
from zoo.training.settings import Settings

if TYPE_CHECKING:
    from zoo.data.corpus import Corpus


@dataclass(frozen=True)
class Job:
    """All that a run needs beside devices.

    Attributes:
        settings: of the run.
        family: what is taught.
        config: its configuration, fitted to the tokenizer.
        corpus: what is read.
        objective: what is learnt.
    """

    settings: Settings
    family: Family
    config: Config
    corpus: "Corpus"
    objective: Objective


def prepare(settings: Settings, *, offline: bool = False) -> Job:
    """Find or make the corpus, and fit model and objective to it.

    Args:
        settings: of the run.
        offline: open no connection, where a tokenizer is taken from a Hub.

    Raises:
        UsageError: settings that do not go together; an empty or too small corpus.
        SourceError, VerificationError: what is read is missing or damaged.
    """
    from tokenizers import Tokenizer

    from zoo.checkpoint import TOKENIZER

    family = get_family(settings.family)
    sizes = family.sizes()
    kind = objective_type(family, sizes[settings.size], settings.objective)
    corpus = open_corpus(settings, family, offline=offline)
    tokenizer = Tokenizer.from_file(str(corpus.path / TOKENIZER))
    config = fit(family, sizes[settings.size], settings, corpus, tokenizer)
    vocabulary = Vocabulary(tokenizer, corpus.record.tokenizer, config.vocab_size)
    options = read_options(kind.options_type, settings.options, settings.objective)
    objective = kind(vocabulary, config, settings.length, options)
    return Job(settings, family, config, corpus, objective)


def open_corpus(settings: Settings, family: Family, *, offline: bool) -> "Corpus":
    """Open what is read, built now if it was not built before; see ``prepare``."""
    from zoo.data.cache import cached_corpus
    from zoo.data.tokenizer import ToTrain, given

    data = settings.data
    if data.tokenizer == "train":
        size = settings.vocab_size or family.sizes()[settings.size].vocab_size
        tokenizer: Any = ToTrain.of(family, size=size)
    else:
        tokenizer = given(data.tokenizer, family, offline=offline)
    return cached_corpus(
        data.paths, tokenizer, reading=data.reading, validation_paths=data.validation
    )


def fit(
    family: Family, config: Any, settings: Settings, corpus: "Corpus", tokenizer: Any
) -> Config:
    """Return a size's configuration with what was set, and what the tokenizer asks for.

    Raises:
        UsageError: a field that does not exist, or a value that does not go with the corpus.
    """
    known = list(config.__struct_fields__)
    for name in settings.config:
        if name not in known:
            raise UsageError(
                f"{family.name} has no setting config.{name}",
                nearest(name, known) or f"there are {', '.join(known)}",
            )
    found = {"vocab_size": corpus.record.vocab_size, **special_ids(config, corpus, tokenizer)}
    try:
        tree = {**msgspec.to_builtins(config), **found, **settings.config}
        fitted: Config = msgspec.convert(tree, type(config))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{family.name} {settings.size}, config: {error}") from error
    if fitted.vocab_size < corpus.record.vocab_size:
        raise UsageError(
            f"config.vocab_size is {fitted.vocab_size}, and the corpus in {corpus.path} has "
            f"tokens up to {corpus.record.vocab_size - 1}",
            "leave it out, or build the corpus with a smaller tokenizer",
        )
    longest = getattr(fitted, "max_positions", settings.length)
    if longest < settings.length:
        raise UsageError(
            f"length is {settings.length}, and the model has {longest} positions",
            f"--set length={longest}, or --set config.max_positions={settings.length}",
        )
    return fitted


def special_ids(config: Any, corpus: "Corpus", tokenizer: Any) -> dict[str, int]:
    """Return the fields of a configuration that name special tokens, for this tokenizer."""
    found = {}
    for role, token in corpus.record.tokenizer.special.items():
        name = f"{role}_token_id"
        if name in config.__struct_fields__:
            found[name] = tokenizer.token_to_id(token)
    return found


def corpus_rows(job: Job, name: str, at_least: int) -> Any:
    """Lay out a split.

    Raises:
        UsageError: it has less than one batch.
    """
    split = job.corpus.split(name)
    rows = job.objective.rows(split, job.settings.seed)
    if len(rows) < at_least:
        raise UsageError(
            f"the {name} split in {job.corpus.path} fills {len(rows)} rows of "
            f"{job.settings.length} tokens, and a batch has {at_least}",
            "use more text, a lower --batch-tokens, or a smaller length",
        )
    return rows
