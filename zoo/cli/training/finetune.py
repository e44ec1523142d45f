"""The command ``zoo finetune``."""

from typing import Any

import click

from zoo.cli.completion import PRESET
from zoo.cli.options import common_options, count_option, global_tokens_option, shared_option
from zoo.cli.parameter_types import REFERENCE
from zoo.cli.task_options import TaskCommand, table_of_tasks, task_options
from zoo.cli.training.options import (
    adapter_option,
    data_option,
    label_option,
    normalization_options,
    pair_option,
    python_options,
    skip_invalid_option,
    text_option,
    training_options,
    weight_option,
)
from zoo.cli.training.runs import print_training, reporting_once, runs_options


@click.command(
    cls=TaskCommand,
    part="train",
    epilog=f"""\b
Tasks:
{table_of_tasks("train")}
  glue/NAME            A task of GLUE; --train is the directory of its files.
                       As texts: --task seq2seq --train glue/NAME=DIR.

\b
Examples:
  zoo finetune REF --task text-classification --train train.tsv --text s
  zoo finetune REF --task glue/cola --train GLUE -o runs/glue/cola
  zoo finetune REF --task regression --train pairs.csv \\
      --text a --pair b --label score
  zoo finetune REF --task text-classification --train t.tsv \\
      --text 1 --label 2 --seeds 3
  zoo finetune REF --task text-classification --train t.tsv \\
      --from-scratch --seeds 3
  zoo finetune REF --task text-classification --train t.jsonl \\
      --preset stable --freeze 4
  zoo finetune REF --task text-classification --train t.tsv \\
      --adapter lora --set adapter.rank=16
  zoo finetune REF --task seq2seq --train sum=a.jsonl --train cola=b.tsv \\
      --text in --label out
  zoo finetune REF --task seq2seq --train glue/mrpc=GLUE
  zoo finetune REF --task question-answering --train train-v2.0.json \\
      --eval dev-v2.0.json
  zoo finetune FAMILY --task text-classification --train t.tsv
  zoo finetune --resume runs/sentiment
  zoo finetune --continue-from runs/sentiment --set num_train_epochs=6

Tables are TSV, CSV, JSON lines or Parquet. Columns are named, or counted from 1 in a file without
a header. Labels come from the training data, sorted. Without --eval, a tenth of the samples
is held out. RUN/config.yaml lists all settings; --set changes any of them.""",
)
@click.argument("model", metavar="REF|FAMILY|CONFIG.yaml", type=REFERENCE, required=False)
@shared_option("task", "What to learn; see below. With --help, shows its options.")
@data_option("train", "Training data.", metavar="[NAME=]FILE")
@data_option("eval_data", "Evaluation data.", metavar="[NAME=]FILE")
@weight_option
@text_option
@pair_option
@label_option
@skip_invalid_option
@task_options("train")
@click.option(
    "--preset",
    type=PRESET,
    metavar="NAME",
    help="Defaults: paper, stable, or the family's others.",
)
@adapter_option
@global_tokens_option
@count_option("--freeze", "Train neither the embeddings nor the N lowest layers.", minimum=0)
@shared_option("size")
@shared_option(
    "tokenizer",
    "Tokenizer of a model with random weights.  [default: train]",
    type=REFERENCE,
    metavar="REF|train",
)
@normalization_options
@training_options
@click.option(
    "--from-scratch",
    is_flag=True,
    help="Also train the same model from random weights, for comparison: same data, seeds and "
    "settings, one report with both curves.",
)
@runs_options
@common_options
def command(model: str | None, as_json: bool, **options: Any) -> None:
    """Fine-tune a model on labelled data; an interrupted run resumes bit for bit.

    The output has the layout of zoo pretrain. The best checkpoint becomes the final model,
    which every command accepts.
    """
    from zoo.api.training import finetune

    with reporting_once():
        training = finetune(model, **python_options(options))
    print_training(training, as_json=as_json)
