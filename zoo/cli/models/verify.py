"""The command ``zoo verify``."""

from dataclasses import asdict

import click

from zoo.cli.options import common_options, reference_argument
from zoo.cli.output import line, result


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
    """Verify every byte of a converted model, an export, a corpus or a training run.

    REF is a directory of one of these, a checkpoint of a training run, or the name of a model in
    the store. For a model, digests, the mapping of tensors, the round trip and ties are checked.
    If transformers is installed, outputs are compared with it layer by layer, and the first layer
    that differs is named.
    """
    from pathlib import Path

    from zoo.conformance.verify import verify
    from zoo.errors import VerificationError
    from zoo.hub.reference import resolve

    path = Path(ref).expanduser()
    if not path.is_dir():
        resolved = resolve(ref)
        path = resolved.path or resolved.stored
    checks = []
    for check in verify(path, reference=not no_parity):
        checks.append(check)
        if not as_json:
            line(f"{check.name:<13} {check.outcome:<8} {check.detail}", indent=" " * 23)
    failed = [check for check in checks if check.outcome == "failed"]
    if as_json and not failed:
        value = {"path": str(path), "ok": True, "checks": [asdict(check) for check in checks]}
        result(value, (), as_json=True)
    if failed:
        names = ", ".join(check.name for check in failed)
        raise VerificationError(
            f"{path}: failed: {names}: {failed[0].detail}"
            if as_json
            else f"{path}: failed: {names}"
        )
