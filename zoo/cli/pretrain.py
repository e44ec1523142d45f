"""``zoo pretrain``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import json_option, seed_option
from zoo.cli.output import result


@click.command(
    epilog="""\b
Examples, with one of `zoo families` as FAMILY:
  zoo pretrain FAMILY                          tiny, on the corpus of the package
  zoo pretrain FAMILY --size small --data books/ -o runs/books
  zoo pretrain FAMILY --objective masked-lm --set optimizer.learning_rate=0.003
  zoo pretrain settings.yaml --steps 10000
  zoo pretrain --resume runs/books
  torchrun --nproc-per-node 8 -m zoo pretrain FAMILY --size base --data corpus/ -o runs/base

\b
Every setting has a default from the family's paper; RUN/config.yaml shows all of them. Nested
ones are set with dots: --set optimizer.clip=0.5 --set config.dropout=0."""
)
@click.argument("what", metavar="FAMILY|CONFIG.yaml", required=False)
@click.option("--size", metavar="S", help="One of the family's sizes.")
@click.option("--objective", metavar="O", help="What is learnt.")
@click.option("--data", "paths", multiple=True, metavar="PATH", help="Text, or a built corpus.")
@click.option("--validation-data", multiple=True, metavar="PATH", help="Text to hold out.")
@click.option("--tokenizer", metavar="REF|train", help="Whose tokenizer, or a new one.")
@click.option("--steps", type=click.IntRange(1), help="Updates of the weights.")
@click.option("--batch-tokens", type=click.IntRange(1), help="Tokens in a step.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting.")
@click.option("--resume", type=click.Path(path_type=Path, file_okay=False), metavar="RUN")
@click.option("--device", metavar="D", help="Such as cpu or cuda; by default CUDA if there.")
@click.option("--shard", is_flag=True, default=None, help="Split weights over processes.")
@click.option("--offline", is_flag=True, help="Open no connection; use what is here.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The run's directory.")
@seed_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    what: str | None,
    resume: Path | None,
    output: Path | None,
    device: str | None,
    offline: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Pretrain a model from raw text, resumable to the bit.

    A run is a directory: settings, log, checkpoints, a report, and in model/ the checkpoint that
    the other commands take. Ctrl-C saves and stops; --resume goes on where it stopped.
    """
    from zoo.training.ranks import Ranks
    from zoo.training.run import Interrupted
    from zoo.training.start import begin, go_on

    changes = _chosen(options, ctx)
    ranks = Ranks.join(device)
    try:
        if resume is not None:
            path, model = resume, go_on(resume, _tree(what), changes, ranks, offline=offline)
        elif what is None:
            raise click.UsageError("say which family to pretrain, or --resume RUN", ctx)
        else:
            path, model = begin(_tree(what), changes, output, ranks, offline=offline)
    except Interrupted as interrupted:
        raise KeyboardInterrupt from interrupted
    finally:
        ranks.leave()
    if ranks.first:
        found = {"run": str(path), "model": str(model), "report": str(path / "report.html")}
        result(found, [f"{name}: {where}" for name, where in found.items()], as_json=as_json)


def _tree(what: str | None) -> dict[str, Any]:
    """Return the settings that a family's name, or a file of settings, stands for."""
    from zoo.training.settings import read_file

    if what is None:
        return {}
    path = Path(what)
    return read_file(path) if path.suffix in (".yaml", ".yml") else {"family": what}


def _chosen(options: dict[str, Any], ctx: click.Context) -> dict[str, Any]:
    """Return the settings that the options stand for, those alone that were given."""
    from zoo.training.settings import assignment, merged

    if ctx.get_parameter_source("seed") is click.core.ParameterSource.DEFAULT:
        options["seed"] = None
    data = {"paths": "paths", "validation": "validation_data", "tokenizer": "tokenizer"}
    nested = {name: options.pop(option) for name, option in data.items()}
    assignments = [assignment(text) for text in options.pop("assignments")]
    tree = {name: value for name, value in options.items() if value is not None}
    read = {name: value for name, value in nested.items() if value}
    return merged(tree, {"data": read} if read else {}, *assignments)
