"""The command ``zoo examples``."""

from typing import Any

import click

from zoo.api.settings import PRETRAIN_SETTINGS, check_settings, config_file, pretrain_values
from zoo.cli.completion import OBJECTIVE
from zoo.cli.options import common_options, count_option, offline_option, shared_option
from zoo.cli.output import line, result
from zoo.cli.parameter_types import REFERENCE, IntegerRange
from zoo.cli.training.options import (
    config_argument,
    data_option,
    normalization_options,
    overrides_from_options,
    seed_setting_option,
    text_of_table_option,
    weight_option,
)

SHOWN = (
    "size",
    "objective",
    "train",
    "weight",
    "text",
    "tokenizer",
    "lowercase",
    "strip_accents",
    "max_seq_len",
    "seed",
)


@click.command(
    epilog="""\b
Examples, with one of `zoo families` as FAMILY:
  zoo examples FAMILY                      on the corpus of the package
  zoo examples FAMILY --train books/ --count 5 --max-seq-len 64
  zoo examples FAMILY --objective masked-lm --set objective_args.mask_prob=0.3"""
)
@config_argument
@shared_option("size", "Model size, one of the family's.")
@click.option("--objective", type=OBJECTIVE, metavar="O", help="Pretraining objective.")
@data_option(
    "train",
    "Training text, or a built corpus; with a name, one of several sources.",
    metavar="[NAME=]PATH",
)
@weight_option
@text_of_table_option
@shared_option(
    "tokenizer",
    "Model whose tokenizer is used, or train.",
    type=REFERENCE,
    metavar="REF|train",
)
@normalization_options
@shared_option("max_seq_len", "Largest number of tokens of a row.", type=IntegerRange(1))
@shared_option("assignments", multiple=True)
@seed_setting_option
@count_option("--count", "Number of examples.", default=3)
@offline_option
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    family_or_file: str | None,
    count: int,
    offline: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the examples that a pretraining objective makes of a corpus.

    What is predicted is in braces after a token: the label of a masked token and, after an
    arrow, the token that a generator with random weights put in its place. Where most tokens have
    labels, these are a line of their own. Packed rows show their documents one by one.
    Only the first documents of a text are read, also to train a tokenizer; a built corpus is read
    as a run reads it.
    """
    if family_or_file is None:
        raise click.UsageError("name a family", ctx)
    settings = pretrain_values(family_or_file)
    shown = {name: PRETRAIN_SETTINGS[name] for name in SHOWN}
    overrides = overrides_from_options(shown, options)
    from zoo.inspection.examples import example_config, show_examples
    from zoo.io.scratch import scratch_directory
    from zoo.training.config.schema import pretrain_config
    from zoo.training.setup import pretrain_setup

    check_settings("pretrain", settings, overrides, config_file(family_or_file))
    config = pretrain_config(settings, overrides, offline=offline)
    with scratch_directory() as scratch:
        config = example_config(config, count, scratch)
        setup = pretrain_setup(config, offline=offline)
        examples = list(show_examples(setup, count))
    value = {
        "objective": setup.objective.name,
        "seq_len": setup.objective.length,
        "examples": [example.to_json() for example in examples],
    }
    if as_json:
        result(value, (), as_json=True)
        return
    line(f"{setup.objective.name}, rows of {setup.objective.length} tokens")
    for example in examples:
        for text in example.lines():
            line(text)
