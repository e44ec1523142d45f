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
    """Return the model configuration with the run's overrides and the tokenizer's vocabulary.

    The configuration of a pretrained model is kept, except for dropout.
    """
    require_fields(family, train_config.config, "config")
    tokenizer_fields = {
        "vocab_size": corpus.record.vocab_size,
        **special_ids(config, corpus.record.tokenizer, tokenizer),
    }
    if train_config.init_from is not None:
        reads_characters = family.text_tokenizer(config) is not None
        tokenizer_fields = check_init_overrides(
            config, train_config, tokenizer_fields, reads_characters=reads_characters
        )
    try:
        fields = {**msgspec.to_builtins(config), **tokenizer_fields, **train_config.config}
        fitted: Config = msgspec.convert(fields, type(config))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{family.name} {train_config.size}, config: {error}") from error
    reads_characters = objective_type(family, fitted, train_config.objective).char_inputs
    if fitted.vocab_size < corpus.record.vocab_size and not reads_characters:
        raise UsageError(
            f"config.vocab_size is {fitted.vocab_size}, and the corpus in {corpus.path} has "
            f"tokens up to {corpus.record.vocab_size - 1}",
            "leave it out, or build the corpus with a smaller tokenizer",
        )
    max_positions = getattr(fitted, "max_positions", train_config.seq_len)
    if max_positions < train_config.seq_len:
        raise UsageError(
            f"seq_len is {train_config.seq_len}, and the model has {max_positions} positions",
            f"--set seq_len={max_positions}, or --set config.max_positions={train_config.seq_len}",
        )
    return fitted


def require_fields(family: Family, names: Iterable[str], setting: str) -> None:
    """Check that the configuration of a family has fields of these names."""
    fields = list(family.config_type.__struct_fields__)
    for name in names:
        if name not in fields:
            raise UsageError(
                f"{family.name} has no setting {setting}.{name}",
                did_you_mean(name, fields) or f"there are {', '.join(fields)}",
            )


def check_init_overrides(
    config: Any,
    train_config: TrainConfig,
    tokenizer_fields: Mapping[str, Any],
    *,
    reads_characters: bool,
) -> dict[str, Any]:
    """Check that settings agree with the pretrained model that the run starts from.

    Args:
        config: configuration of the pretrained model.
        train_config: settings of the run.
        tokenizer_fields: fields of the configuration that follow from the run's tokenizer.
        reads_characters: whether the model reads characters, and has no rows of tokens.

    Returns:
        Fields that the run's tokenizer changes.
    """
    assert train_config.init_from is not None
    fields = dict(train_config.config)
    changes = {}
    if train_config.data.tokenizer is not None:
        fields = {**tokenizer_fields, "vocab_size": config.vocab_size, **train_config.config}
        if reads_characters:
            changes["vocab_size"] = tokenizer_fields["vocab_size"]
    for name, value in fields.items():
        if name.endswith(DROPOUT) or (name == "vocab_size" and reads_characters):
            continue
        model_value = msgspec.to_builtins(getattr(config, name))
        if value != model_value:
            hint = "give another --tokenizer"
            if name in train_config.config:
                hint = "leave it out"
            raise UsageError(
                f"config.{name} would be {value}, and {train_config.init_from.model} has "
                f"{model_value}",
                hint,
            )
    return changes


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
