"""The command ``zoo verify``."""

from typing import TYPE_CHECKING

import click

from zoo.cli.options import common_options, reference_argument
from zoo.cli.output import line, result

if TYPE_CHECKING:
    from zoo.io.digests.checks import Check


@click.command(
    epilog="""\b
Examples:
  zoo verify ./model
  zoo verify ./model --no-parity --json
  zoo verify ./run/checkpoints/step-1000"""
)
@reference_argument
@click.option("--no-parity", is_flag=True, help="Skip the comparison with transformers.")
@common_options
def command(ref: str, no_parity: bool, as_json: bool) -> None:
    """Verify every byte of a converted model, an export, a corpus, cleaned texts or a run.

    REF is a directory of one of these, a checkpoint of a training run, or the name of a model in
    the store. For a model, digests, the mapping of tensors, the round trip and ties are checked.
    If transformers is installed, outputs are compared with it layer by layer, and the first layer
    that differs is named.
    """
    from zoo.api.conversion import verify

    def show(check: "Check") -> None:
        if not as_json:
            line(f"{check.name:<13} {check.outcome:<8} {check.detail}", indent=" " * 23)

    verification = verify(ref, parity=not no_parity, on_check=show)
    if as_json:
        result(verification.to_dict(), (), as_json=True)
