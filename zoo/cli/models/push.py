"""The command ``zoo push``."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli.options import common_options, shared_option
from zoo.cli.output import note, result, table
from zoo.cli.parameter_types import LocalPath

if TYPE_CHECKING:
    from zoo.hub.upload.plan import UploadPlan


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
    from zoo.hub.upload.plan import plan_upload

    _require_hub_class(path)
    plan = plan_upload(path, repo, licence)
    commit = None
    if yes:
        from zoo.hub.upload.upload import upload

        commit = upload(plan, repo, private=not public, message=message)
    for name in plan.left_out:
        note(f"{path / name} is left out: zoo did not write it")
    value = {
        "path": str(path),
        "repo": repo,
        "private": not public,
        "licence": plan.licence,
        "files": [
            {"name": name, "bytes": file.bytes, "sha256": file.sha256}
            for name, file in plan.files.items()
        ],
        "left_out": list(plan.left_out),
        "uploaded": yes,
        "commit": commit,
    }
    result(value, _lines(plan, repo, public, commit), as_json=as_json)


def _require_hub_class(path: Path) -> None:
    """Refuse a model in zoo's layout that no class of the Hub has; an export of it can be sent."""
    from zoo.checkpoint import CONFIG, is_checkpoint, load_checkpoint
    from zoo.errors import UsageError

    if not is_checkpoint(path) or (checkpoint := load_checkpoint(path)).is_export:
        return
    if checkpoint.family.config_files[0] != CONFIG:  # written in the layout of the release
        return
    try:
        checkpoint.family.architecture(checkpoint.config, checkpoint.head_name)
    except UsageError as error:
        command = shlex.join(["zoo", "export", str(path)])
        raise UsageError(
            f"{path} cannot be converted to the Hub's layout: {error.what}",
            f"`{command}` writes a directory that can be pushed",
        ) from error


def _lines(plan: "UploadPlan", repo: str, public: bool, commit: str | None) -> list[str]:
    rows = [
        (name, f"{file.bytes:,}", (file.sha256 or "")[:12]) for name, file in plan.files.items()
    ]
    licence = plan.licence or "none: state it by --licence, or in README.md"
    lines = [*table(rows, ("file", "bytes", "sha256")), f"licence: {licence}"]
    if commit is not None:
        return [*lines, f"uploaded {plan.bytes:,} bytes: {commit}"]
    visibility = "public" if public else "private"
    return [
        *lines,
        f"{plan.bytes:,} bytes would go to {repo}, which is {visibility} if it is new; add --yes "
        "to upload them",
    ]
