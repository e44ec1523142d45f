"""``zoo verify``."""

from dataclasses import asdict

import click

from zoo.cli.options import json_option, reference_argument
from zoo.cli.output import line, result


@click.command(
    epilog="""\b
Examples:
  zoo verify ./model
  zoo verify ./model --no-parity --json
  zoo verify ./run/checkpoints/step-1000"""
)
@reference_argument
@click.option("--no-parity", is_flag=True, help="Do not compare with the reference library.")
@json_option
def command(ref: str, no_parity: bool, as_json: bool) -> None:
    """Check a converted model, an export, a corpus or a run: every byte that was written.

    REF is the directory of one of these, of a checkpoint of a run, or the name of a model in the
    store. Of a model, digests, account, round trip and ties are checked; where the transformers
    library is installed, outputs are compared with its, layer by layer, and the first layer that
    diverges is named.
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
            line(f"{check.name:<13} {check.outcome:<8} {check.detail}")
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
