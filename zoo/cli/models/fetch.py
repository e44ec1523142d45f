"""The command ``zoo fetch``."""

from typing import Any

import click

from zoo.cli.options import common_options, hub_options, reference_argument
from zoo.cli.output import result


@click.command(
    epilog="""\b
Examples:
  zoo fetch all-minilm-l6-v2
  zoo fetch organisation/name --revision v1.0 --lock zoo.lock"""
)
@reference_argument
@hub_options
@click.option(
    "--allow-pickle", is_flag=True, help="Download PyTorch .bin files if there are no others."
)
@common_options
def command(ref: str, revision: str | None, as_json: bool, **options: Any) -> None:
    """Download a checkpoint into the cache of huggingface_hub and verify its digests.

    Only files that a conversion needs are downloaded, or those of an export. An interrupted
    download is resumed.
    """
    from zoo.hub.reference import resolve
    from zoo.hub.source import locate_or_download

    source = locate_or_download(
        resolve(ref, revision=revision, stored=False), exports=True, **options
    )
    files = {
        name: {"bytes": digest.bytes, "blake3": digest.blake3, "sha256": digest.sha256}
        for name, digest in source.digests.items()
    }
    value = {
        "repo": source.repo,
        "revision": source.revision,
        "directory": str(source.directory),
        "files": files,
    }
    lines = [f"{source.repo or ref} at {source.revision or source.directory}"]
    lines += [f"  {file['bytes']:>13,}  {name}" for name, file in files.items()]
    result(value, [*lines, f"in {source.directory}"], as_json=as_json)
