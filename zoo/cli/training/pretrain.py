"""``zoo pretrain``."""

from typing import Any

import click

from zoo.cli.options import common_options, count_option
from zoo.cli.training.options import config_argument, python_options, run_options
from zoo.cli.training.runs import print_training, reporting_once, runs_options


@click.command(
    epilog="""\b
Examples, with one of `zoo families` as FAMILY:
  zoo pretrain FAMILY                      tiny, on the corpus of the package
  zoo pretrain FAMILY --size small --train books/ -o runs/books
  zoo pretrain FAMILY --objective masked-lm --set optimizer.learning_rate=0.01
  zoo pretrain --init-from REF --train articles/ --max-steps 10000
  zoo pretrain settings.yaml --max-steps 10000
  zoo pretrain FAMILY --streaming --train shards/ --eval held-out/ \\
      --tokenizer REF --max-steps 100000
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
@count_option(
    "--workers",
    "Number of processes that tokenize a stream, 0 for none.  [default: all cores]",
    minimum=0,
)
@common_options
def command(family_or_file: str | None, as_json: bool, **options: Any) -> None:
    """Pretrain a model on raw text; an interrupted run resumes bit for bit.

    A run is a directory with configuration, logs, checkpoints, a report, and in model/ the final
    model for the other commands. Ctrl-C saves a checkpoint and stops; --resume continues.
    """
    from zoo.api.training import pretrain

    with reporting_once():
        training = pretrain(family_or_file, **python_options(options))
    print_training(training, as_json=as_json)
