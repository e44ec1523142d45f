"""``zoo check resume``."""

from typing import Any

import click

from zoo.api.settings import PRETRAIN_SETTINGS, config_file, pretrain_values
from zoo.cli.options import common_options, count_option, shared_option
from zoo.cli.output import result
from zoo.cli.training.options import (
    config_argument,
    overrides_from_options,
    run_options,
)

STEPS = 12


@click.command(
    epilog="""\b
Examples:
  zoo check resume settings.yaml
  zoo check resume FAMILY --train books/ --max-steps 40 --kills 5"""
)
@config_argument
@run_options
@count_option("--kills", "Number of kills.", default=2)
@shared_option("device", "Device, such as cpu or cuda; by default CUDA if available.")
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    family_or_file: str | None,
    kills: int,
    device: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Kill a run at random moments, resume it, and compare it with an uninterrupted run.

    Both runs are temporary, of 12 steps unless --max-steps is given, with frequent checkpoints.
    All files must be equal bit for bit, except those that hold times: the weights, the state of
    the optimizer, the log and the final model.
    """
    if family_or_file is None:
        raise click.UsageError("name a family or a configuration file", ctx)
    import msgspec

    from zoo.training.checks import check_resume
    from zoo.training.config.overrides import deep_merge
    from zoo.training.config.schema import prefix_errors, pretrain_config

    changes = overrides_from_options(PRETRAIN_SETTINGS, options)
    steps = changes.get("max_steps", STEPS)
    often = {"max_steps": steps, "save_steps": max(1, steps // 4), "logging_steps": 1}
    with prefix_errors(config_file(family_or_file)):
        config = pretrain_config(pretrain_values(family_or_file), deep_merge(changes, often))
    check = check_resume(msgspec.to_builtins(config), kills=kills, device=device)
    at = " and ".join(f"{lines} lines" for lines in check.kills)
    line = (
        f"exact: {check.steps} steps, killed after {at} of the log; "
        f"{check.tensors} tensors and {check.log_bytes:,} bytes of log are the same"
    )
    result(msgspec.to_builtins(check), [line], as_json=as_json)
