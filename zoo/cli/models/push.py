"""The command ``zoo push``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli.options import common_options, shared_option
from zoo.cli.output import note, result, table
from zoo.cli.parameter_types import LocalPath

if TYPE_CHECKING:
    from zoo.api.conversion import Upload


@click.command(
    epilog="""\b
Examples:
  zoo convert ./model --to hub -o ./hub-directory
  zoo push ./hub-directory organisation/name
  zoo push ./model-onnx organisation/name-onnx
  zoo push ./hub-directory organisation/name --yes"""
)
@click.argument("path", metavar="DIR", type=LocalPath("file"))
@click.argument("repo", metavar="REPO")
@click.option("--yes", is_flag=True, help="Upload; without it, nothing is sent.")
@click.option("--public", is_flag=True, help="Make a new repository public.")
@click.option(
    "--message",
    metavar="TEXT",
    default="Upload model",
    show_default=True,
    help="Message of the commit.",
)
@shared_option(
    "licence", "Licence to state on the model card, such as apache-2.0.  [default: the card's]"
)
@common_options
def command(
    path: Path,
    repo: str,
    yes: bool,
    public: bool,
    message: str,
    licence: str | None,
    as_json: bool,
) -> None:
    """Upload a directory of `zoo convert --to hub`, or an export, to a Hub repository.

    Without --yes, the files that would be sent are listed. A new repository is private. The access
    token comes from $HF_TOKEN or `hf auth login`.
    """
    from zoo.api.conversion import push

    upload = push(path, repo, yes=yes, public=public, message=message, licence=licence)
    for name in upload.plan.left_out:
        note(f"{path / name} is left out: zoo did not write it")
    result(upload.to_dict(), _lines(upload), as_json=as_json)


def _lines(upload: "Upload") -> list[str]:
    plan = upload.plan
    rows = []
    for name, file in plan.files.items():
        rows.append((name, f"{file.bytes:,}", (file.sha256 or "")[:12]))
    licence = plan.licence or "none: state it by --licence, or in README.md"
    lines = [*table(rows, ("file", "bytes", "sha256")), f"licence: {licence}"]
    if upload.commit is not None:
        return [*lines, f"uploaded {plan.bytes:,} bytes: {upload.commit}"]
    visibility = "private" if upload.is_private else "public"
    return [
        *lines,
        f"{plan.bytes:,} bytes would go to {upload.repo}, which is {visibility} if it is new; add "
        "--yes to upload them",
    ]
