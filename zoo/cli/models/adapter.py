"""The command ``zoo adapter`` and its subcommands."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import LazyGroup
from zoo.cli.options import (
    common_options,
    count_option,
    force_option,
    output_option,
    reference_argument,
    shared_option,
)
from zoo.cli.output import fields, hint, result, table
from zoo.cli.parameter_types import PATH, REFERENCE, LocalPath

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

HERE = "zoo.cli.models.adapter"
COMMANDS = {
    "list": (f"{HERE}:list_all", "List the adapters of directories."),
    "info": (f"{HERE}:info", "Describe an adapter and its base."),
    "merge": (f"{HERE}:merge", "Merge adapters into the weights of their base."),
    "extract": (f"{HERE}:extract", "Make an adapter of the difference of two models."),
}
COLUMNS = ("adapter", "method", "parameters", "head", "base")
MAX_TENSORS_SHOWN = 8
BROKEN = {"method": "broken"}  # Columns of an adapter that cannot be read.


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    epilog="""\b
Examples:
  zoo adapter list runs
  zoo adapter info runs/sst2/model
  zoo adapter merge runs/sst2/model -o merged
  zoo adapter extract REF ./tuned --rank 16 -o adapter""",
)
def command() -> None:
    """Describe, merge and extract adapters.

    `zoo finetune --adapter METHOD` trains an adapter, and `zoo run`, `zoo eval` and `zoo export`
    apply it with --adapter DIR.
    """


@click.command(epilog="Example: zoo adapter list runs")
@click.argument("paths", nargs=-1, metavar="[DIR...]", type=LocalPath("file"))
@common_options
def list_all(paths: tuple[Path, ...], as_json: bool) -> None:
    """List the adapters in directories and those below them.

    Without directories, these are the working directory and the store. An adapter that cannot be
    read is listed as broken.
    """
    from zoo.adapted_models.checkpoint import find_adapters, load_adapter
    from zoo.errors import ZooError
    from zoo.io.paths import store

    values = []
    folders = paths or [path for path in (Path(), store()) if path.is_dir()]
    for path in find_adapters(folders):
        try:
            values.append({**_summary(load_adapter(path)), "problem": None})
        except ZooError as error:
            values.append({"adapter": str(path), "method": None, "problem": str(error)})
    rows = []
    for value in values:
        rows.append([str(value.get(column) or BROKEN.get(column, "")) for column in COLUMNS])
    lines = ["no adapters; `zoo finetune --adapter` trains one"]
    if rows:
        lines = table(rows, COLUMNS)
    result({"adapters": values}, lines, as_json=as_json)
    if any(value["problem"] for value in values) and not as_json:
        hint("`zoo adapter info DIR` says what is broken")


def _summary(adapter: "Checkpoint") -> dict[str, Any]:
    from zoo.adapted_models.checkpoint import adapter_file, adapter_method_of, adapter_record
    from zoo.io.tensors.safetensors import read_header

    record = adapter_record(adapter)
    file = adapter_file(adapter)
    infos = read_header(file)[0].values()
    return {
        "adapter": str(adapter.path),
        "method": adapter_method_of(adapter).name,
        "settings": record.settings,
        "family": adapter.family.name,
        "head": adapter.head_name,
        "parameters": sum(math.prod(info.shape) for info in infos),
        "bytes": file.stat().st_size,
        "base": record.base.reference,
        "base_digest": record.base.weights,
    }


@click.command(epilog="Example: zoo adapter info runs/sst2/model")
@click.argument("path", metavar="DIR", type=LocalPath("file"))
@common_options
def info(path: Path, as_json: bool) -> None:
    """Describe an adapter: its method, its settings, its base, and whether that is available."""
    from zoo.adapted_models.checkpoint import load_adapter
    from zoo.conversion.cache import base_problem

    adapter = load_adapter(path)
    value = _summary(adapter)
    problem = base_problem(adapter)
    labels = list(adapter.config.labels) if adapter.head.has_labels else []
    rows = {"adapter": value["adapter"], "method": value["method"]}
    for name, setting in value["settings"].items():
        if name == "method":
            continue
        if isinstance(setting, list | tuple):
            rows[f"  {name}"] = ", ".join(map(str, setting))
        else:
            rows[f"  {name}"] = str(setting)
    rows["parameters"] = f"{value['parameters']:,}, {value['bytes']:,} bytes"
    rows["head"] = adapter.head_name
    if labels:
        rows["labels"] = ", ".join(labels)
    rows["base"] = value["base"]
    rows["digest"] = value["base_digest"]
    rows["available"] = "yes" if problem is None else f"no: {problem}"
    value["tasks"] = list(adapter.head.tasks)
    value["labels"] = labels
    value["base_problem"] = problem
    result(value, fields(rows), as_json=as_json)


@click.command(
    epilog="""\b
Examples:
  zoo adapter merge runs/sst2/model -o merged
  zoo adapter merge german/model task/model --base REF -o merged"""
)
@click.argument("paths", nargs=-1, required=True, metavar="DIR...", type=PATH)
@click.option(
    "--base",
    type=REFERENCE,
    metavar="REF",
    help="Model that the adapters change.  [default: the one that the first adapter names]",
)
@output_option(required=True)
@shared_option("offline")
@force_option
@common_options
def merge(
    paths: tuple[str, ...],
    base: str | None,
    output: Path,
    offline: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Merge adapters into the weights of their base, and write a model like any other.

    Tied tensors have to stay tied, and all weights finite; otherwise the exit code is 3 and nothing
    is written. The largest change of a weight is printed.
    """
    from zoo.adapted_models.checkpoint import AdaptedCheckpoint
    from zoo.conversion.cache import resolve_adapted
    from zoo.io.output.overwrite import check_target

    check_target(output, force=force, sources=[Path(path) for path in paths])
    checkpoint = resolve_adapted(base, [Path(path) for path in paths], offline=offline)
    assert isinstance(checkpoint, AdaptedCheckpoint), "there are adapters"
    from zoo.adapters.merge import merge as merge_into  # imports torch

    report = merge_into(checkpoint, output, force=force)
    changes = f"{report.changed} tensors changed, by at most {report.largest_change:.3g}"
    if report.largest_in:
        changes += f", in {report.largest_in}"
    lines = [changes]
    if report.tied:
        lines.append(f"still tied on the Hub: {', '.join(report.tied)}")
    lines.append(f"wrote {report.path}")
    result(report.to_dict(), lines, as_json=as_json)


@click.command(epilog="Example: zoo adapter extract REF ./tuned --rank 16 -o adapter")
@reference_argument
@click.argument("tuned", metavar="REF", type=REFERENCE)
@count_option("--rank", "Rank of each update.", default=8)
@click.option(
    "--target-module",
    "targets",
    multiple=True,
    metavar="NAME",
    help="Linear maps to change, by the Hub's names; may be repeated.  [default: all-linear]",
)
@output_option(required=True)
@shared_option("offline")
@force_option
@common_options
def extract(
    ref: str,
    tuned: str,
    rank: int,
    targets: tuple[str, ...],
    output: Path,
    offline: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Make a LoRA adapter of the difference of a model and one that was trained from it.

    Each matrix gets the best update of that rank, by its singular value decomposition. What is
    lost is printed as a relative error in the Frobenius norm: of the matrices, and of tensors that
    an update cannot change, such as norms and embeddings. A head that REF lacks becomes the
    adapter's.
    """
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.io.output.overwrite import check_target

    check_target(output, force=force)
    base = resolve_checkpoint(ref, offline=offline)
    tuned_model = resolve_checkpoint(tuned, offline=offline)
    from zoo.adapted_models.targets import ALL_LINEAR
    from zoo.adapters.extract import extract as extract_into  # imports torch

    report = extract_into(
        ref, base, tuned_model, output, rank=rank, targets=targets or (ALL_LINEAR,), force=force
    )
    remainder = f"not in the adapter: {report.outside:.3g} of the difference"
    if report.left:
        names = list(report.left[:MAX_TENSORS_SHOWN])
        if len(report.left) > MAX_TENSORS_SHOWN:
            names.append("...")
        remainder += f", in {', '.join(names)}"
    lines = [
        f"{report.matrices} matrices of rank {report.rank}: relative error {report.error:.3g}, at "
        f"most {report.largest_error:.3g} in {report.largest_in}",
        remainder,
        f"wrote {report.path}",
    ]
    result(report.to_dict(), lines, as_json=as_json)
