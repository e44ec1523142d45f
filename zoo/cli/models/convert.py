"""``zoo convert``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import force_option, hub_options, json_option, output_option
from zoo.cli.options import reference_argument as reference
from zoo.cli.output import result


@click.command(
    epilog="""\b
Examples:
  zoo convert all-minilm-l6-v2
  zoo convert ./hub-directory -o ./model --dtype float16
  zoo convert ./model --to hub -o ./hub-directory
  zoo convert ./tensorflow/model.ckpt -o ./model
  zoo convert organisation/name --dry-run
  zoo convert ./model --head sequence-classification --init-head --labels no,yes -o ./start"""
)
@reference
@output_option
@click.option(
    "--to",
    type=click.Choice(["zoo", "hub"]),
    default="zoo",
    show_default=True,
    help="The layout to write: ours, or the Hub's.",
)
@click.option("--head", metavar="H", help="The head, by default the one the tensors fill.")
@click.option("--dtype", metavar="D", help="Store floating tensors in this dtype.")
@click.option("--init-head", is_flag=True, help="Start a head that is not there at random.")
@click.option("--labels", metavar="A,B,...", help="Names of that head's outputs.")
@click.option("--model-type", metavar="T", help="What an old config.json without it is of.")
@click.option("--tokenizer", metavar="REF", help="Take the tokenizer from there.")
@click.option("--allow-pickle", is_flag=True, help="Read PyTorch pickles, without running them.")
@click.option("--ignore-crc", is_flag=True, help="Read .bin files that have no checksums.")
@click.option("--dry-run", is_flag=True, help="Read headers alone, print the account.")
@hub_options
@force_option
@json_option
def command(ref: str, output: Path | None, as_json: bool, **options: Any) -> None:
    """Convert a checkpoint and prove that nothing was lost.

    Every tensor of the source is mapped, dropped with a reason, or tied; every tensor of the
    result is filled. Anything else stops the conversion. Before the result is published, the
    source's tensors are rebuilt from it and compared bit for bit.
    """
    from zoo.convert import convert
    from zoo.errors import UsageError
    from zoo.hub.reference import resolve
    from zoo.hub.source import locate_or_download
    from zoo.io.output.overwrite import check_target

    hub = {name: options.pop(name) for name in ("offline", "lock")}
    revision, tokenizer, labels = (options.pop(k) for k in ("revision", "tokenizer", "labels"))
    model_type = options.pop("model_type")
    # without -o the result takes its place in the store: it cannot be the source, too
    found = resolve(ref, revision=revision, stored=output is not None)
    if output is None and not options["dry_run"] and not _has_place(found.kind, options["to"]):
        raise UsageError("this conversion has no place in the store", "say where with -o DIR")
    if not options["dry_run"]:
        sources = [] if found.path is None else [found.path]
        target = output or found.stored
        check_target(target, force=options["force"], sources=sources)  # before any download
    report = convert(
        locate_or_download(
            found, **hub, allow_pickle=options["allow_pickle"], model_type=model_type
        ),
        output or found.stored,
        tokenizer=locate_or_download(resolve(tokenizer), **hub, tokenizer_alone=True)
        if tokenizer
        else None,
        labels=[label.strip() for label in labels.split(",")] if labels else None,
        **options,
    )
    lines = [*report.lines(), f"wrote {report.path}" if report.path else "nothing was written"]
    result(report.to_dict(), lines, as_json=as_json)


def _has_place(kind: str, to: str) -> bool:
    """Whether the store has a name for the result: what a registry or a Hub calls it."""
    return kind in ("registry", "hub") and to == "zoo"
