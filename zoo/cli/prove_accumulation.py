"""``zoo prove-accumulation``."""

from typing import Any

import click

from zoo.cli.options import json_option
from zoo.cli.output import result
from zoo.cli.training import chosen, run_options, settings_file, tree, what_argument


@click.command(
    epilog="""\b
Examples:
  zoo prove-accumulation settings.yaml
  zoo prove-accumulation FAMILY --data books/ --batch-tokens 2048"""
)
@what_argument
@run_options
@click.option("--offline", is_flag=True, help="Open no connection; use what is here.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, what: str | None, offline: bool, as_json: bool, **options: Any
) -> None:
    """Show that a batch in several parts gives the gradients of the whole.

    The gradients of the first step are computed with your settings, in float64 and without
    dropout, from the whole batch and from it in parts; they must agree to one part in a million.
    """
    if what is None:
        raise click.UsageError("say which family or settings", ctx)
    import msgspec

    from zoo.training.prove import prove_accumulation
    from zoo.training.settings import gather, naming

    with naming(settings_file(what)):
        settings = gather(tree(what), chosen(ctx, options), offline=offline)
    found = prove_accumulation(settings, offline=offline)
    lines = [
        f"{found.rows} rows in parts of {size}: gradients differ by {far:.1e} at most"
        for size, far in found.splits.items()
    ]
    result(msgspec.to_builtins(found), lines, as_json=as_json)
