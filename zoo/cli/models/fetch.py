"""``zoo fetch``."""

from typing import Any

import click

from zoo.cli.options import hub_options, json_option
from zoo.cli.options import reference_argument as reference
from zoo.cli.output import result


@click.command(
    epilog="""\b
Examples:
  zoo fetch all-minilm-l6-v2
  zoo fetch organisation/name --revision v1.0 --lock zoo.lock"""
)
@reference
@hub_options
@click.option(
    "--allow-pickle", is_flag=True, help="Download PyTorch pickles if nothing else is there."
)
@json_option
def command(ref: str, revision: str | None, as_json: bool, **options: Any) -> None:
    """Download a checkpoint into the Hub's cache, and check every digest.

    Only the files that a conversion needs are downloaded. An interrupted download is resumed.
    """
    from zoo.hub.reference import resolve
    from zoo.hub.source import locate_or_download

    source = locate_or_download(resolve(ref, revision=revision, stored=False), **options)
    files = {
        name: {"bytes": known.bytes, "blake3": known.blake3, "sha256": known.sha256}
        for name, known in source.digests.items()
    }
    value = {
        "repo": source.repo,
        "revision": source.revision,
        "directory": str(source.directory),
        "files": files,
    }
    lines = [f"{source.repo or ref} at {source.revision or source.directory}"]
    lines += [f"  {known['bytes']:>13,}  {name}" for name, known in files.items()]
    result(value, [*lines, f"in {source.directory}"], as_json=as_json)
