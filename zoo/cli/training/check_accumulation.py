"""``zoo check accumulation``."""

from typing import Any

import click

from zoo.api.settings import PRETRAIN_SETTINGS, config_file, pretrain_values
from zoo.cli.options import common_options, offline_option
from zoo.cli.output import result
from zoo.cli.training.options import (
    config_argument,
    overrides_from_options,
    run_options,
)


@click.command(
    epilog="""\b
Examples:
  zoo check accumulation settings.yaml
  zoo check accumulation FAMILY --train books/ --global-batch-tokens 2048"""
)
@config_argument
@run_options
@offline_option
@common_options
@click.pass_context
def command(
    ctx: click.Context, /, family_or_file: str | None, offline: bool, as_json: bool, **options: Any
) -> None:
    """Check that gradient accumulation computes the gradients of the full batch.

    The gradients of the first step are computed in float64 and without dropout, from the whole
    batch and from micro-batches; they must agree to a relative 1e-6.
    """
    if family_or_file is None:
        raise click.UsageError("name a family or a configuration file", ctx)
    import msgspec

    from zoo.training.checks import check_grad_accumulation
    from zoo.training.config.schema import prefix_errors, pretrain_config

    with prefix_errors(config_file(family_or_file)):
        config = pretrain_config(
            pretrain_values(family_or_file),
            overrides_from_options(PRETRAIN_SETTINGS, options),
            offline=offline,
        )
    check = check_grad_accumulation(config, offline=offline)
    lines = [
        f"{check.rows} rows in parts of {size}: gradients differ by {far:.1e} at most"
        for size, far in check.max_differences.items()
    ]
    result(msgspec.to_builtins(check), lines, as_json=as_json)
