"""The command ``zoo info``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from zoo.cli.options import common_options, hub_options, reference_argument
from zoo.cli.output import result

if TYPE_CHECKING:
    from zoo.hub.lockfile import Lock
    from zoo.hub.reference import Reference

MANIFEST_KEYS = ("licence", "source", "dtypes", "export", "evaluations", "files")


@click.command(
    epilog="""\b
Examples:
  zoo info all-minilm-l6-v2
  zoo info ./model --json"""
)
@reference_argument
@hub_options
@common_options
def command(
    ref: str, as_json: bool, revision: str | None, lock: Path | None, **options: Any
) -> None:
    """Describe a model without loading its weights.

    A directory is described from its files, a name of the registry from its row, and a Hub
    repository from its configuration, which is the only file downloaded.
    """
    from zoo.checkpoint import is_checkpoint
    from zoo.hub.lockfile import Lock
    from zoo.hub.reference import resolve

    opened = Lock.open(lock)  # first, so that a damaged lock file is refused for every reference
    reference = resolve(ref, revision=revision)
    value: dict[str, Any] = {"reference": ref, "kind": reference.kind}
    if is_checkpoint(reference.path or reference.stored):
        value |= _checkpoint(reference.path or reference.stored)
    elif reference.path is not None:
        value |= _directory(reference)
    elif reference.kind == "registry" and reference.row is not None and reference.row.size:
        value |= _row(reference)
    else:
        value |= _repository(reference, lock=opened, **options)
    result(value, _lines(value), as_json=as_json)


def _checkpoint(path: Path) -> dict[str, Any]:
    from zoo.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(path)
    manifest = msgspec.to_builtins(checkpoint.manifest)
    return {
        "path": str(path),
        "family": checkpoint.family.name,
        "head": checkpoint.head_name,
        "tasks": list(checkpoint.head.tasks),
        "parameters": checkpoint.weights.parameters(),
        "config": msgspec.to_builtins(checkpoint.config),
        "tokenizer": msgspec.to_builtins(checkpoint.model.tokenizer),
        "pooling": msgspec.to_builtins(checkpoint.model.pooling),
        **{key: manifest.get(key) for key in MANIFEST_KEYS},
    }


def _directory(reference: "Reference") -> dict[str, Any]:
    from zoo.convert import convert
    from zoo.hub.source import locate_or_download

    return convert(locate_or_download(reference), None, dry_run=True, allow_pickle=False).to_dict()


def _row(reference: "Reference") -> dict[str, Any]:
    from zoo.hub import registry

    assert reference.row is not None, "kind registry has a row"
    row = reference.row
    value = {"name": reference.name, **msgspec.to_builtins(row)}
    config = registry.entry_config(reference.name, row)
    return {**value, "config": msgspec.to_builtins(config), "stored": False}


def _repository(reference: "Reference", *, offline: bool, lock: "Lock | None") -> dict[str, Any]:
    from zoo.convert.inspect import find_config
    from zoo.errors import SourceError
    from zoo.hub import fetch
    from zoo.hub.select_files import config_files
    from zoo.hub.source import CheckpointDir

    if reference.repo is None:
        raise SourceError(f"{reference.text} has no files to read")
    fetched = fetch(
        reference.repo,
        revision=reference.revision,
        select=config_files,
        offline=offline,
        lock=lock,
    )
    if not fetched.files:
        raise SourceError(f"{reference.repo} has no configuration that an installed family knows")
    source = CheckpointDir(
        fetched.directory,
        reference.text,
        reference.repo,
        digests=dict(fetched.files),
        row=reference.row,
    )
    _, family, hub = find_config(source)
    return {
        "repo": fetched.repo,
        "revision": fetched.revision,
        "family": family.name,
        "model_type": hub.get("model_type"),
        "architectures": hub.get("architectures"),
        "config": hub,
    }


def _lines(value: dict[str, Any], indent: str = "") -> list[str]:
    lines: list[str] = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{indent}{key}", *_lines(item, indent + "  ")]
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            for number, part in enumerate(item, 1):
                lines += [f"{indent}{key} {number}", *_lines(part, indent + "  ")]
        elif item not in (None, {}, [], ()):
            shown = f"{item:,}" if key == "parameters" else item
            text = ", ".join(map(str, item)) if isinstance(item, list | tuple) else str(shown)
            lines.append(f"{indent}{key:<18} {text}")
    return lines
