"""``zoo pretrain``."""

from typing import Any

import click

from zoo.cli.options import common_options
from zoo.cli.preflight import check_settings
from zoo.cli.training.options import (
    SETTINGS,
    config_argument,
    config_file,
    config_values,
    overrides_from_options,
    run_options,
)
from zoo.cli.training.runs import print_paths, processes, run_arguments, runs_options, train

KNOWN_FAMILY = ("init_from", "resume", "continue_from")  # options that say what the family is


@click.command(
    epilog="""\b
Examples, with one of `zoo families` as FAMILY:
  zoo pretrain FAMILY                      tiny, on the corpus of the package
  zoo pretrain FAMILY --size small --train books/ -o runs/books
  zoo pretrain FAMILY --objective masked-lm --set optimizer.learning_rate=0.01
  zoo pretrain --init-from REF --train articles/ --max-steps 10000
  zoo pretrain settings.yaml --max-steps 10000
  zoo pretrain --resume runs/books
  zoo pretrain --continue-from runs/books --max-steps 20000 -o runs/longer
  zoo pretrain FAMILY --seeds 3 -o runs/three
  torchrun --nproc-per-node 8 -m zoo pretrain FAMILY \\
      --size base --train corpus/ -o runs/base

Every setting has a default from the family's paper; RUN/config.yaml lists all of them. Nested
settings are set with dots: --set optimizer.max_grad_norm=0.5 --set config.dropout=0."""
)
@config_argument
@run_options
@runs_options
@common_options
@click.pass_context
def command(ctx: click.Context, /, family_or_file: str | None, **options: Any) -> None:
    """Pretrain a model on raw text; an interrupted run resumes bit for bit.

    A run is a directory with configuration, logs, checkpoints, a report, and in model/ the final
    model for the other commands. Ctrl-C saves a checkpoint and stops; --resume continues.
    """
    if family_or_file is None and not any(options[name] for name in KNOWN_FAMILY):
        raise click.UsageError(
            "name a family to pretrain, or give --init-from REF or --resume RUN", ctx
        )
    settings = config_values(family_or_file)
    overrides = overrides_from_options(ctx, SETTINGS, options)
    check_settings("pretrain", settings, overrides, config_file(family_or_file))
    from zoo.training.run import PretrainRun

    with processes(options) as dist:
        run = PretrainRun(
            settings,
            dist,
            overrides=overrides,
            **run_arguments(options),
            file=config_file(family_or_file),
        )
        paths, _ = train(ctx, run, options)
    if dist.is_main_process:
        print_paths(paths, as_json=options["as_json"])
