"""The command ``zoo info``."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from zoo.cli.options import common_options, hub_options, reference_argument
from zoo.cli.output import result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.checkpoint import Manifest
    from zoo.hub.lockfile import Lock
    from zoo.hub.reference import Reference

# values of ``--json``, and a function that returns the lines
Described = tuple[dict[str, Any], Callable[[], list[str]]]
MANIFEST_KEYS = ("licence", "source", "dtypes", "export", "evaluations", "files")


@click.command(
    epilog="""\b
Examples:
  zoo info all-minilm-l6-v2
  zoo info ./model
  zoo info ./model --verbose
  zoo info ./run --json"""
)
@reference_argument
@hub_options
@common_options
def command(
    ref: str, as_json: bool, revision: str | None, lock: Path | None, **options: Any
) -> None:
    """Describe a model, an export, a run, a corpus or cleaned texts, without loading weights.

    A directory is described from its files, a name of the registry from its row, and a Hub
    repository from its configuration, which is the only file downloaded. --verbose adds the classes
    of the modules and the digests of the files.
    """
    from zoo.checkpoint import is_checkpoint
    from zoo.hub.lockfile import Lock
    from zoo.hub.reference import resolve

    opened = Lock.open(lock)  # first, so that a damaged lock file is refused for every reference
    reference = resolve(ref, revision=revision)
    start: dict[str, Any] = {"reference": ref, "kind": reference.kind}
    path = reference.path or reference.stored
    if is_checkpoint(path):
        value, lines = _checkpoint(path)
    elif reference.path is not None and reference.stem is None and (own := _own(path)) is not None:
        value, lines = own
    elif reference.path is not None:
        value, lines = _directory(reference)
    elif reference.kind == "registry" and reference.row is not None and reference.row.size:
        value, lines = _row(reference)
    else:
        value, lines = _repository(reference, lock=opened, **options)
    result({**start, **value}, () if as_json else lines(), as_json=as_json)


def _own(path: Path) -> Described | None:
    """Return values and lines on texts, a corpus, or a run, also of several seeds or stages."""
    from zoo.cleaning.records import is_cleaned
    from zoo.cli.models import describe
    from zoo.data.corpus import is_corpus

    if is_cleaned(path):
        return _lazily(*describe.describe_cleaned_texts(path))
    if is_corpus(path):
        return _lazily(*describe.describe_corpus(path))
    if (path / "seeds.json").is_file():
        return _lazily(*describe.describe_seeds(path))
    if (path / "comparison.json").is_file():
        return _lazily(*describe.describe_comparison(path))
    if (path / "stages.json").is_file():
        return _lazily(*describe.describe_stages(path))
    if path.parent.name == "checkpoints" and (path.parent.parent / "run.json").is_file():
        path = path.parent.parent
    if (path / "run.json").is_file() and (path / "config.yaml").is_file():
        return _lazily(*describe.describe_run(path))
    return None


def _lazily(value: dict[str, Any], lines: list[str]) -> Described:
    return value, lambda: lines


def _checkpoint(path: Path) -> Described:
    from zoo.checkpoint import load_checkpoint
    from zoo.cli.models import describe

    checkpoint = load_checkpoint(path)
    manifest = msgspec.to_builtins(checkpoint.manifest)
    value = {
        "path": str(path),
        "family": checkpoint.family.name,
        "head": checkpoint.head_name,
        "tasks": describe.tasks_of(checkpoint),
        "parameters": checkpoint.weights.parameters(),
        "config": msgspec.to_builtins(checkpoint.config),
        "tokenizer": msgspec.to_builtins(checkpoint.model.tokenizer),
        "pooling": msgspec.to_builtins(checkpoint.model.pooling),
        **{key: manifest.get(key) for key in MANIFEST_KEYS},
    }
    described = {None: describe.describe_model, "onnx": describe.describe_export}.get(
        checkpoint.export_target, describe.describe_target
    )
    return value, lambda: described(
        checkpoint, verbose=click.get_current_context().meta.get("zoo.verbosity") == "verbose"
    )


def _directory(reference: "Reference") -> Described:
    from zoo.conversion.convert import convert
    from zoo.hub.source import locate_or_download
    from zoo.io.output.overwrite import HUB_RECORD

    assert reference.path is not None, "a directory"
    source = locate_or_download(reference)
    report = convert(source, None, dry_run=True, allow_pickle=False)
    words = ["zoo", "convert", reference.text, "-o", f"{reference.name}-zoo"]
    if (reference.path / HUB_RECORD).is_file():
        words = ["zoo", "push", reference.text, "organisation/name"]
    return report.to_dict(), lambda: [*report.lines(), "", f"next: {shlex.join(words)}"]


def _row(reference: "Reference") -> Described:
    from zoo.cli.models import describe
    from zoo.hub import registry

    assert reference.row is not None, "kind registry has a row"
    row = reference.row
    value = {"name": reference.name, **msgspec.to_builtins(row)}
    config = registry.entry_config(reference.name, row)
    value |= {"config": msgspec.to_builtins(config), "stored": False}
    following = shlex.join(["zoo", "convert", reference.name])
    return value, lambda: describe.describe_values(value, following=following)


def _repository(reference: "Reference", *, offline: bool, lock: "Lock | None") -> Described:
    from zoo.checkpoint import MANIFEST, Manifest
    from zoo.cli.models import describe
    from zoo.conversion.inspect import find_config
    from zoo.errors import SourceError
    from zoo.hub import fetch
    from zoo.hub.select_files import config_files, export_files, matching
    from zoo.hub.source import CheckpointDir
    from zoo.io.json import read_json_record

    if reference.repo is None:
        raise SourceError(f"{reference.text} has no files to read")
    exported = list[str]()

    def look(directory: Path, names: "Sequence[str]") -> list[str]:
        if MANIFEST in names:
            exported.extend(export_files(directory / MANIFEST, names))
        return []

    fetched = fetch(
        reference.repo,
        revision=reference.revision,
        select=lambda names: [*config_files(names), *matching(names, (MANIFEST,))],
        select_more=look,
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
    value = {
        "repo": fetched.repo,
        "revision": fetched.revision,
        "family": family.name,
        "model_type": hub.get("model_type"),
        "architectures": hub.get("architectures"),
        "config": hub,
    }
    words = ["zoo", "convert", reference.text]
    if exported:
        more = _export(read_json_record(fetched.directory / MANIFEST, Manifest))
        value |= more
        words = ["zoo", "run", more["tasks"][0], reference.text]
    following = shlex.join(words)
    return value, lambda: describe.describe_values(value, following=following)


def _export(manifest: "Manifest") -> dict[str, Any]:
    """Return values on an export in a repository from its manifest."""
    from zoo.checkpoint.load import ONNX
    from zoo.errors import VerificationError
    from zoo.plugins import get_family

    model = manifest.model
    export = manifest.export or {}
    head = get_family(model.family).heads().get(model.head) if model else None
    if model is None or head is None:
        raise VerificationError("the export is of an older layout", "export and push it again")
    files = sum(file.bytes for file in manifest.files.values())
    target = export.get("target", ONNX)
    tasks = list(head.tasks)
    return {"export": target, "head": model.head, "tasks": tasks, "bytes": files}
