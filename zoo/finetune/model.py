"""The model of a fine-tuning run: pretrained checkpoint, tokenizer and configuration."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from zoo.checkpoint import TOKENIZER
from zoo.data.tokenizer import TRAIN, ExistingTokenizer, TokenizerToTrain, load_tokenizer
from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.finetune.base import FineTuning
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer_json import parse, read_checked
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import DROPOUT
from zoo.training.setup import special_ids
from zoo.training.state.pretrained import PretrainedInit
from zoo.training.state.run_manifest import RunManifest

LOG = logging.getLogger("zoo")
Resumed = tuple[Path, RunManifest]  # directory and manifest of a run that is resumed


def pretrained_init(
    config: FineTuneConfig,
    family: Family,
    *,
    offline: bool,
    resumed: Resumed | None,
) -> PretrainedInit | None:
    """Return the pretrained model, from the directory of a run that is resumed."""
    if config.init_from is None:
        return None
    if resumed is not None and resumed[1].init_from is not None:
        return PretrainedInit.from_run(resumed[0], resumed[1].init_from, config.init_from, family)
    return PretrainedInit.resolve(config.init_from, family, offline=offline)


def run_tokenizer(
    config: FineTuneConfig,
    family: Family,
    init: PretrainedInit | None,
    task: type[FineTuning],
    train: Sequence[Any],
    *,
    offline: bool,
    resumed: Resumed | None,
) -> ExistingTokenizer | None:
    """Return the tokenizer of the model; for new weights, that of the settings or a new one."""
    if init is not None:
        if config.tokenizer is not None:
            raise UsageError("a pretrained model keeps its tokenizer", "leave out --tokenizer")
        built_in = family.text_tokenizer(init.config) is not None
        return init.tokenizer if built_in else init.own_tokenizer(family)
    if resumed is not None:
        info = resumed[1].tokenizer
        return (
            None if info is None else ExistingTokenizer(read_checked(resumed[0] / TOKENIZER), info)
        )
    if config.tokenizer in (None, TRAIN):
        size = config.vocab_size or family.sizes()[_size(config, family)].vocab_size
        LOG.info("training a tokenizer of at most %s tokens on the texts", f"{size:,}")
        texts = [text for sample in train for text in task.texts(sample)]
        return TokenizerToTrain.for_family(family, vocab_size=size).make(lambda: [texts])
    return load_tokenizer(str(config.tokenizer), family, offline=offline)


def _size(config: FineTuneConfig, family: Family) -> str:
    size, sizes = config.size or "tiny", family.sizes()
    if size not in sizes:
        raise UsageError(
            f"{family.name} has no size {size!r}",
            did_you_mean(size, list(sizes)) or f"it has {', '.join(sizes)}",
        )
    return size


def fit_config(
    config: FineTuneConfig,
    family: Family,
    task: type[FineTuning],
    init: PretrainedInit | None,
    tokenizer: ExistingTokenizer | None,
    labels: tuple[str, ...],
) -> Config:
    """Return the configuration of the model to train.

    Raises:
        UsageError: a field of ``config`` does not exist, has a wrong value, or must not change.
    """
    base = family.sizes()[_size(config, family)] if init is None else init.config
    known = list(base.__struct_fields__)
    for name in config.config:
        if name not in known:
            raise UsageError(
                f"{family.name} has no setting config.{name}",
                did_you_mean(name, known) or f"there are {', '.join(known)}",
            )
        if init is not None and not name.endswith(DROPOUT):
            raise UsageError(f"config.{name} cannot change in a pretrained model", "leave it out")
    derived: dict[str, Any] = {"labels": task.output_names(labels) or base.labels}
    for name, value in task.config_changes(config).items():
        if name not in known:
            raise UsageError(f"models of {family.name} have no {name} of layers", "leave it out")
        derived[name] = value
    if task.problem is not None:
        derived["problem"] = task.problem
    if tokenizer is not None and family.text_tokenizer(base) is None:
        parsed = parse(tokenizer.json, Path(TOKENIZER))
        size = max(parsed.get_vocab().values()) + 1
        if init is None:
            derived |= {"vocab_size": size, **special_ids(base, tokenizer.info, parsed)}
        elif size > base.vocab_size:  # the task added tokens
            derived["vocab_size"] = size
    try:
        tree = {**msgspec.to_builtins(base), **derived, **config.config}
        fitted: Config = msgspec.convert(tree, type(base))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{family.name}, config: {error}") from error
    return fitted


def text_tokenizer(
    family: Family, config: Config, tokenizer: ExistingTokenizer | None
) -> TextTokenizer:
    """Return the tokenizer of texts: the family's own, or that of a file."""
    built_in = family.text_tokenizer(config)
    if built_in is not None:
        return built_in
    assert tokenizer is not None, "a family without a tokenizer of its own has one by now"
    return TextTokenizer(parse(tokenizer.json, Path(TOKENIZER)), tokenizer.info)
