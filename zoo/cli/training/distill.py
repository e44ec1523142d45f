"""The command ``zoo distill``."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.options import common_options, seed_option
from zoo.cli.training.options import config_file, overrides_from_options
from zoo.cli.training.runs import RunRequest, run_command, runs_options

# option -> path of the setting
SETTINGS = {
    "teacher": "distillation.teachers",
    "student": "student.name",
    "recipe": "distillation.recipe",
    "data": "data.paths",
    "eval_data": "data.eval_paths",
    "objective": "objective",
    "task": "task",
    "train": "data.train",
    "eval_files": "data.eval",
    "text": "data.text",
    "pair": "data.pair",
    "label": "data.label",
    "preset": "preset",
    "cache_teacher": "distillation.cache_teacher",
    "max_steps": "max_steps",
    "global_batch_tokens": "global_batch_tokens",
    "report_to": "report_to",
    "fsdp": "fsdp",
    "seed": "seed",
}


@click.command(
    epilog="""\b
Examples, with names of `zoo families` and `zoo models`:
  zoo distill --teacher REF --student FAMILY             on the corpus of the package
  zoo distill --teacher REF --student FAMILY --data books/ -o runs/student
  zoo distill --teacher REF --student FAMILY --set student.num_layers=3
  zoo distill --teacher REF --student tiny --recipe minilmv2 --data books/
  zoo distill --teacher RUN/model --student FAMILY --task text-classification --train t.tsv
  zoo distill --teacher A --teacher B --student REF --recipe logits --task glue/sst2 --train GLUE
  zoo distill --teacher REF --student FAMILY --recipe my-recipe.yaml
  zoo distill --resume runs/student

\b
The recipe gives loss terms, initial layers and settings; RUN/config.yaml lists all of them, and
--set changes any, such as --set distillation.terms=[...] or --set student.hidden_size=256."""
)
@click.argument("file", metavar="[CONFIG.yaml]", required=False)
@click.option("--teacher", multiple=True, metavar="REF", help="Model to learn from.")
@click.option(
    "--student",
    metavar="FAMILY|SIZE|REF",
    help="A family with half of the teacher's layers, a size of its family, or a model.",
)
@click.option("--recipe", metavar="NAME|FILE", help="Loss terms and settings.")
@click.option("--data", multiple=True, metavar="PATH", help="Training text, or a built corpus.")
@click.option("--eval-data", multiple=True, metavar="PATH", help="Held-out text for evaluation.")
@click.option("--objective", metavar="O", help="Objective of the student on text.")
@click.option("--task", metavar="TASK", help="Task on labelled data, as of zoo finetune.")
@click.option("--train", multiple=True, metavar="FILE", help="Labelled training data.")
@click.option("--eval", "eval_files", multiple=True, metavar="FILE", help="Evaluation data.")
@click.option("--text", metavar="COL", help="Column of the text.  [default: text]")
@click.option("--pair", metavar="COL", help="Column of the second text.")
@click.option("--label", metavar="COL", help="Column of the label.  [default: label]")
@click.option("--preset", metavar="NAME", help="Settings of the task, as of zoo finetune.")
@click.option(
    "--cache-teacher", metavar="DIR", help="Keep the teacher's outputs, and read them there."
)
@click.option("--max-steps", type=click.IntRange(1), help="Number of optimizer steps.")
@click.option(
    "--global-batch-tokens", type=click.IntRange(1), metavar="N", help="Tokens of text per step."
)
@click.option(
    "--report-to",
    multiple=True,
    metavar="LOGGER",
    help="tensorboard (default), wandb, mlflow, or a plugin's logger.",
)
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override any setting."
)
@seed_option
@runs_options
@common_options
@click.pass_context
def command(ctx: click.Context, /, file: str | None, **options: Any) -> None:
    """Distil a student from one or several teachers; an interrupted run resumes bit for bit.

    A run is a directory as that of zoo pretrain, and its model one like any other.
    """
    if file is None and not options["teacher"] and options["resume"] is None:
        raise click.UsageError("name a teacher and a student, or give --resume RUN", ctx)
    from zoo.distill.runs import DISTILL

    request = RunRequest.from_options(
        options,
        values=settings_file(ctx, file),
        overrides=overrides_from_options(ctx, SETTINGS, options),
        file=config_file(file),
    )
    run_command(ctx, DISTILL, request)


def settings_file(ctx: click.Context, file: str | None) -> dict[str, Any]:
    """Return the settings of a file, or none."""
    from zoo.training.config.overrides import read_config_file

    if file is None:
        return {}
    path: Path | None = config_file(file)
    if path is None:
        raise click.UsageError(f"{file} is not a YAML file", ctx)
    return read_config_file(path)
