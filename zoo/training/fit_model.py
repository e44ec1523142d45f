"""Fitting of a model's configuration to a run: its settings, corpus and memory."""

import math
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.objectives import objective_type
from zoo.training.config.schema import DROPOUT, TrainConfig

if TYPE_CHECKING:
    from zoo.data.corpus import Corpus
    from zoo.tokenizers.info import TokenizerInfo


def adapt_model_config(
    family: Family, config: Any, train_config: TrainConfig, corpus: "Corpus", tokenizer: Any
) -> Config:
    """Return the model configuration with the run's overrides and the tokenizer's vocabulary."""
    # The configuration of a pretrained model is kept, except for dropout.
    require_fields(family, train_config.config, "config")
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


def require_fields(family: Family, names: Iterable[str], setting: str) -> None:
    """Check that the configuration of a family has fields of these names."""
    known = list(family.config_type.__struct_fields__)
    for name in names:
        if name not in known:
            raise UsageError(
                f"{family.name} has no setting {setting}.{name}",
                did_you_mean(name, known) or f"there are {', '.join(known)}",
            )


def check_init_overrides(
    config: Any, train_config: TrainConfig, derived: Mapping[str, Any], *, spelled: bool
) -> dict[str, Any]:
    """Check that settings agree with the pretrained model that the run starts from."""
    assert train_config.init_from is not None
    reused = train_config.data.tokenizer is None
    free = {"vocab_size"} if spelled else set()
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


def check_memory(family: Family, config: Config, head: str) -> None:
    """Check, before anything is allocated, that the weights fit into the machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    count = sum(math.prod(entry.shape) for entry in family.weights(config, head).entries())
    if 4 * count > memory:
        raise UsageError(
            f"{family.name} has {count:,} parameters with these settings, which take "
            f"{4 * count / 2**30:,.0f} GiB, and this machine has {memory / 2**30:,.0f} GiB",
            "give a smaller config",
        )
