"""The command ``zoo finetune``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.completion import PRESET, SUITE
from zoo.cli.file_lists import DependentArgument
from zoo.cli.options import common_options, count_option, global_tokens_option, shared_option
from zoo.cli.output import result
from zoo.cli.parameter_types import REFERENCE, InputFile
from zoo.cli.suites import require_all_tasks, suite_table
from zoo.cli.task_options import (
    TaskCommand,
    table_of_suites,
    table_of_tasks,
    task_options,
    tasks_option,
)
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
from zoo.errors import UsageError
from zoo.io.numbers import int_from_environment
from zoo.plugins.suites import find_suite

if TYPE_CHECKING:
    from zoo.api.finetuning_suites import SuiteTraining
    from zoo.suites.base import Suite


@click.command(
    cls=TaskCommand,
    part="train",
    epilog=f"""\b
Tasks:
{table_of_tasks("train")}
  glue/NAME            A task of GLUE; --train is the directory of its files.
                       As texts: --task seq2seq --train glue/NAME=DIR.

\b
Suites:
{table_of_suites(finetuned=True)}

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
  zoo finetune REF --suite glue GLUE --seeds 5 -o runs/glue
  zoo finetune REF --suite superglue SuperGLUE --mixture -o runs/all
  zoo finetune --resume runs/sentiment
  zoo finetune --continue-from runs/sentiment --set num_train_epochs=6

Tables are TSV, CSV, JSON lines or Parquet. Columns are named, or counted from 1 in a file without
a header. Labels come from the training data, sorted. Without --eval, a tenth of the samples
is held out. RUN/config.yaml lists all settings; --set changes any of them.""",
)
@click.argument("model", metavar="REF|FAMILY|CONFIG.yaml", type=REFERENCE, required=False)
@click.argument(
    "data_folder",
    cls=DependentArgument,
    flag="--suite",
    metavar="[DIR]",
    type=InputFile(),
    required=False,
)
@shared_option("task", "What to learn; see below. With --help, shows its options.")
@click.option(
    "--suite",
    type=SUITE,
    metavar="NAME",
    help="Train a model for each task of a benchmark, whose files are in DIR, and evaluate it. The "
    "same command with --auto-resume continues.",
)
@tasks_option
@click.option(
    "--mixture",
    is_flag=True,
    help="Train one text-to-text model on all tasks of --suite, in proportion to their sizes.",
)
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
def command(
    model: str | None,
    data_folder: str | None,
    suite: str | None,
    tasks: tuple[str, ...],
    mixture: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Fine-tune a model on labelled data; an interrupted run resumes bit for bit.

    The output has the layout of zoo pretrain. The best checkpoint becomes the final model,
    which every command accepts.
    """
    if suite is not None:
        suite_options = {**python_options(options), "tasks": tasks, "mixture": mixture}
        _finetune_suite(model, suite, data_folder, suite_options, as_json=as_json)
        return
    if data_folder is not None:
        raise UsageError(f"{data_folder} is a folder of --suite", "name other data by --train")
    if tasks:
        raise UsageError("--tasks selects tasks of a suite", "leave it out, or give --suite")
    if mixture:
        raise UsageError("--mixture mixes the tasks of a suite", "leave it out, or give --suite")
    from zoo.api.training import finetune

    with reporting_once():
        training = finetune(model, **python_options(options))
    print_training(training, as_json=as_json)


def _finetune_suite(
    model: str | None,
    suite: str,
    data_folder: str | None,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Train and evaluate the tasks of a suite; only the main process prints."""
    from zoo.api.finetuning_suites import finetune_suite

    if model is None or data_folder is None:
        raise UsageError(
            "a suite needs a model and a directory of files",
            "write zoo finetune REF --suite NAME DIR",
        )
    if options["output"] is None:
        raise UsageError("the runs of a suite have no directory", "name it with -o")
    with reporting_once():
        training = finetune_suite(model, suite, data_folder, **options)
    if int_from_environment("RANK", 0) != 0:
        return
    result(training.to_dict(), _suite_lines(training), as_json=as_json)
    require_all_tasks(
        training.failures,
        training.missing_files,
        hint="correct what these lines name, or move a damaged run away, and repeat the command "
        "with --auto-resume",
        as_json=as_json,
    )


def _suite_lines(training: "SuiteTraining") -> list[str]:
    """Return the table of a suite: mean and standard deviation over the seeds."""
    rows = []
    for name, numbers in training.tasks.items():
        metrics = [metric for metric in numbers if metric != "score"]
        cells = [_percent(numbers[metric], 100) for metric in metrics]
        score = _percent(numbers["score"], 1)
        rows.append((name, " / ".join(metrics), " / ".join(cells), score))
    suite: Suite = find_suite(training.suite)
    averaged = [task for task in suite.tasks if task.is_averaged and task.name in training.tasks]
    average = _percent(training.average, 1)
    lines = suite_table(rows, average, len(averaged), training.missing)
    seeds = len(training.average["values"])
    if seeds > 1:
        lines += ["", f"means and standard deviations over {seeds} seeds"]
    return [*lines, f"runs: {training.path}"]


def _percent(numbers: Mapping[str, Any], factor: float) -> str:
    """Return a mean and its standard deviation, if there is one."""
    text = f"{factor * numbers['mean']:.1f}"
    if "std" in numbers:
        text += f" ± {factor * numbers['std']:.1f}"
    return text
