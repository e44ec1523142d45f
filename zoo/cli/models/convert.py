"""The command ``zoo convert``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import (
    common_options,
    force_option,
    hub_options,
    output_option,
    reference_argument,
    shared_option,
)
from zoo.cli.output import result
from zoo.cli.parameter_types import REFERENCE


@click.command(
    epilog="""\b
Examples:
  zoo convert all-minilm-l6-v2
  zoo convert ./hub-directory -o ./model --dtype float16
  zoo convert ./model --to hub -o ./hub-directory
  zoo convert ./tensorflow/model.ckpt -o ./model
  zoo convert organisation/name --dry-run
  zoo convert ./peft-adapter --base REF -o ./adapter
  zoo convert ./adapter --to hub -o ./peft-adapter
  zoo convert ./model --head sequence-classification --init-head \\
      --labels no,yes -o ./start"""
)
@reference_argument
@output_option()
@click.option(
    "--to",
    type=click.Choice(["zoo", "hub"]),
    default="zoo",
    show_default=True,
    help="Layout of the output: zoo's or the Hub's.",
)
@click.option(
    "--head", metavar="H", help="Head of the model.  [default: inferred from the tensors]"
)
@shared_option("dtype", "Dtype of the stored weights.  [default: as in the source]")
@click.option(
    "--init-head", is_flag=True, help="Initialize the head randomly if the source has none."
)
@click.option("--labels", metavar="A,B,...", help="Labels of the new head.")
@click.option("--model-type", metavar="T", help="Model type, for a config.json without one.")
@shared_option("tokenizer", "Model whose tokenizer is used.", type=REFERENCE)
@click.option(
    "--allow-pickle", is_flag=True, help="Read PyTorch .bin files; nothing in them is executed."
)
@click.option(
    "--ignore-crc", is_flag=True, help="Read .bin files that were written without checksums."
)
@shared_option(
    "licence",
    "Licence in the manifest and the model card, such as apache-2.0.  [default: the source's]",
)
@click.option(
    "--base",
    type=REFERENCE,
    metavar="REF",
    help="Model that an adapter changes.  [default: the one that it names]",
)
@click.option("--dry-run", is_flag=True, help="Read only headers and print how tensors map.")
@hub_options
@force_option
@common_options
def command(ref: str, output: Path | None, as_json: bool, **options: Any) -> None:
    """Convert a checkpoint, with every tensor accounted for.

    Every tensor of the source is mapped, dropped for a stated reason, or tied, and every
    parameter of the model is filled; otherwise the exit code is 3 and nothing is written. The
    source is rebuilt from the result and compared bit for bit before the result is published.
    """
    from zoo.adapted_models.checkpoint import hint_of_subfolders
    from zoo.conversion import convert
    from zoo.errors import UsageError
    from zoo.hub.reference import resolve
    from zoo.hub.source import locate_or_download
    from zoo.io.output.overwrite import check_target

    base = options.pop("base")
    if _has_adapter(ref):
        _convert_adapter(ref, base, output, options, as_json=as_json)
        return
    if base is not None:
        if resolve(ref, revision=options["revision"]).path is None:
            raise UsageError(
                f"{ref} is not a directory, and --base is for the directory of an adapter",
                "download the adapter, and give its directory; or leave --base out",
            )
        raise UsageError(
            f"{ref} is not an adapter",
            hint_of_subfolders(Path(ref).expanduser()) or "leave --base out",
        )
    hub = {name: options.pop(name) for name in ("offline", "lock")}
    revision = options.pop("revision")
    tokenizer = options.pop("tokenizer")
    labels = options.pop("labels")
    model_type = options.pop("model_type")
    # An output in the store, which is the default, cannot overwrite the source.
    reference = resolve(ref, revision=revision, stored=output is not None)
    is_stored = reference.kind in ("registry", "hub") and options["to"] == "zoo"
    if output is None and not options["dry_run"] and not is_stored:
        raise UsageError(
            "this conversion has no name in the store", "give an output directory: -o DIR"
        )
    if not options["dry_run"]:
        sources = [] if reference.path is None else [reference.path]
        target = output or reference.stored
        check_target(target, force=options["force"], sources=sources)
    source = locate_or_download(
        reference, **hub, allow_pickle=options["allow_pickle"], model_type=model_type
    )
    tokenizer_source = None
    if tokenizer:
        tokenizer_source = locate_or_download(resolve(tokenizer), **hub, tokenizer_alone=True)
    report = convert(
        source,
        output or reference.stored,
        tokenizer=tokenizer_source,
        labels=_split_labels(labels),
        **options,
    )
    last_line = f"wrote {report.path}" if report.path else "nothing was written"
    result(report.to_dict(), [*report.lines(), last_line], as_json=as_json)


def _split_labels(labels: str | None) -> list[str] | None:
    if not labels:
        return None
    return [label.strip() for label in labels.split(",")]


def _has_adapter(ref: str) -> bool:
    """Return whether a reference is a directory with an adapter, of zoo or of another library."""
    from zoo.adapters.layouts import is_foreign_adapter
    from zoo.checkpoint import is_checkpoint, load_checkpoint

    path = Path(ref).expanduser()
    if is_checkpoint(path):
        return load_checkpoint(path).is_adapter
    return path.is_dir() and is_foreign_adapter(path)


def _convert_adapter(
    ref: str, base: str | None, output: Path | None, options: dict[str, Any], *, as_json: bool
) -> None:
    """Convert an adapter of another library, or write one in its layout."""
    from zoo.adapters.layouts import read_adapter_of, write_adapter_for
    from zoo.errors import UsageError
    from zoo.io.output.overwrite import check_target

    labels = options.pop("labels")
    to = options.pop("to")
    force = options.pop("force")
    read_options = {name: options.pop(name) for name in ("head", "offline", "allow_pickle")}
    for name, value in options.items():
        if value:
            raise UsageError(
                f"--{name.replace('_', '-')} is for whole models, and {ref} is an adapter",
                "leave it out",
            )
    if output is None:
        raise UsageError("an adapter has no name in the store", "give an output directory: -o DIR")
    path = Path(ref).expanduser()
    check_target(output, force=force, sources=[path])
    if to == "hub":
        offline = read_options["offline"]
        report = write_adapter_for(path, base, output, force=force, offline=offline)
    else:
        report = read_adapter_of(
            path, base, output, labels=_split_labels(labels), force=force, **read_options
        )
    result(report.to_dict(), report.lines(), as_json=as_json)
