"""The command ``zoo eval``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import backend_options, common_options, hub_options, reference_argument
from zoo.cli.output import result, table
from zoo.evaluate import EVALUATIONS

TASK_HELP = "\n".join(f"  {name:20}{text}" for name, (_, text) in EVALUATIONS.items())
# options of single evaluations
OPTIONS = {
    "stride": ("perplexity",),
    "seq_len": ("replaced-tokens",),
    "replace_prob": ("replaced-tokens",),
    "seed": ("replaced-tokens",),
}


@click.command(
    epilog=f"""\b
Tasks:
{TASK_HELP}

\b
Examples:
  zoo eval REF --task perplexity --data book.txt
  zoo eval REF --task minimal-pairs --data pairs.tsv
  zoo eval RUN/model --task replaced-tokens --data book.txt --json

A table of minimal pairs has the columns paradigm, good and bad."""
)
@reference_argument
@click.option(
    "--task", required=True, type=click.Choice(list(EVALUATIONS)), help="Name of the evaluation."
)
@click.option(
    "--data",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Text, or a table; may be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Number of examples.  [default: all]",
)
@click.option(
    "--stride",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens between the windows of a long text.  [default: half a window]",
)
@click.option(
    "--seq-len",
    type=click.IntRange(3),
    metavar="N",
    help="Tokens per row.  [default: 64]",
)
@click.option(
    "--replace-prob",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="P",
    help="Fraction of the tokens that is replaced.  [default: 0.1]",
)
@click.option("--seed", type=int, metavar="N", help="Seed of the replacements.  [default: 0]")
@backend_options
@hub_options
@common_options
def command(
    ref: str,
    task: str,
    data: tuple[Path, ...],
    revision: str | None,
    offline: bool,
    lock: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Evaluate a model, and print its metrics."""
    from zoo.convert.on_first_use import resolve_checkpoint
    from zoo.errors import UsageError
    from zoo.evaluate import evaluation_type, make_evaluation
    from zoo.export.session import open_or_export
    from zoo.inference.scoring import require_scorer

    compute = {name: options.pop(name) for name in ("backend", "device", "dtype", "threads")}
    requested = {name: value for name, value in options.items() if value is not None}
    for name in requested.keys() & OPTIONS.keys():
        if task not in OPTIONS[name]:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{task} has no option {flag}", f"leave {flag} out")
    checkpoint = resolve_checkpoint(ref, revision=revision, offline=offline, lock=lock)
    require_scorer(checkpoint, evaluation_type(task).scorers)  # before loading the weights
    session = open_or_export(checkpoint, **compute)
    measured = make_evaluation(task, checkpoint, session, **requested).evaluate(data)
    value = {
        "reference": ref,
        "task": task,
        "data": [str(path) for path in data],
        **requested,
        "metrics": dict(measured.metrics),
        **measured.details,
    }
    rows = [(name, _format(number)) for name, number in measured.metrics.items()]
    for name, parts in measured.details.items():
        rows += [(f"{name}: {part}", _format(number)) for part, number in parts.items()]
    result(value, table(rows, ("metric", "value")), as_json=as_json)


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
