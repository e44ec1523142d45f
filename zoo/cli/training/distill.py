"""The command ``zoo distill``."""

from typing import TYPE_CHECKING, Any

import click

from zoo.cli import output
from zoo.cli.completion import OBJECTIVE, PRESET, RECIPE
from zoo.cli.many_files import shard_type_option
from zoo.cli.options import common_options, count_option, shared_option
from zoo.cli.parameter_types import PATH, REFERENCE, FiniteRange, PathText
from zoo.cli.training.options import (
    data_option,
    label_option,
    pair_option,
    python_options,
    skip_invalid_option,
    text_option,
    training_options,
    weight_option,
)
from zoo.cli.training.runs import print_training, reporting_once, runs_options
from zoo.data.many_files.shard import FORMS
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.api.training import Training


class DistillCommand(click.Command):
    """Command whose help lists the losses, also plugins'."""

    @override
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from zoo.distillation.losses import loss_types

        with formatter.section("Losses, as kind of a term"):
            formatter.write_dl([(loss.name, loss.summary) for loss in loss_types()])
        super().format_epilog(ctx, formatter)


@click.command(
    cls=DistillCommand,
    epilog="""\b
Examples, with names of `zoo families` and `zoo models`:
  zoo distill --teacher REF --student FAMILY     on the corpus of the package
  zoo distill --teacher REF --student FAMILY --train books/ -o runs/student
  zoo distill --teacher REF --student FAMILY --set student.num_layers=3
  zoo distill --teacher REF --student tiny --recipe minilmv2 --train books/
  zoo distill --teacher RUN/model --student FAMILY --train t.tsv \\
      --task text-classification
  zoo distill --teacher A --teacher B --student REF --recipe logits \\
      --task glue/sst2 --train GLUE
  zoo distill --teacher REF --student static --train sentences.txt
  zoo distill --recipe minilmv2 --print-recipe > my-recipe.yaml
  zoo distill --teacher REF --student FAMILY --recipe my-recipe.yaml
  zoo distill --teacher REF --student FAMILY --train books/ \\
      --cache-teacher outputs/ --shard 1/4
  zoo distill --resume runs/student
  zoo distill --continue-from runs/student --max-steps 20000

The recipe gives loss terms, initial layers and settings; RUN/config.yaml lists all of them, and
--set changes any, such as --set distillation.terms.kl.weight=2 or
--set student.hidden_size=256.""",
)
@click.argument("file", metavar="[CONFIG.yaml]", type=PATH, required=False)
@click.option(
    "--teacher", multiple=True, type=REFERENCE, metavar="REF", help="Model to learn from."
)
@click.option(
    "--student",
    type=REFERENCE,
    metavar="FAMILY|SIZE|REF|static",
    help="A family with half of the teacher's layers, a size of its family, a model, or static.",
)
@click.option("--recipe", type=RECIPE, metavar="NAME|FILE", help="Loss terms and settings.")
@click.option("--print-recipe", is_flag=True, help="Print the recipe as YAML to edit, and end.")
@data_option(
    "train",
    "Training text, or a built corpus; with --task, labelled data.",
    metavar="[NAME=]PATH",
)
@data_option(
    "eval_data",
    "Held-out text for evaluation; with --task, labelled data.",
    metavar="[NAME=]PATH",
)
@weight_option
@click.option("--objective", type=OBJECTIVE, metavar="O", help="Objective of the student on text.")
@shared_option("task", "Task on labelled data, as in zoo finetune.")
@text_option
@pair_option
@label_option
@skip_invalid_option
@click.option(
    "--preset", type=PRESET, metavar="NAME", help="Settings of the task, as in zoo finetune."
)
@click.option(
    "--align",
    type=click.Choice(["tokens", "text"]),
    help="Align by token (same tokenizer) or by text embedding.  [default: tokens]",
)
@click.option(
    "--teacher-backend",
    type=click.Choice(["auto", "cpu", "cuda", "onnx"]),
    help="Where the teachers run.  [default: where the student does]",
)
@click.option(
    "--cache-teacher",
    type=PathText("output", takes_url=False),
    metavar="DIR",
    help="Keep the teacher's outputs, and read them there.",
)
@shard_type_option(
    "Only compute the K-th of N parts of the outputs for --cache-teacher, and train nothing: "
    f"{FORMS}."
)
@count_option("--global-batch-tokens", "Number of tokens per optimizer step, on text.")
@training_options
@click.option("--no-score", is_flag=True, help="Do not compare the student with its teacher.")
@click.option(
    "--score-backend",
    multiple=True,
    type=click.Choice(["cpu", "cuda", "onnx"]),
    help="Backend whose speed is measured; may be repeated.",
)
@click.option(
    "--min-retention",
    type=FiniteRange(0, min_open=True),
    metavar="R",
    help="Exit code 3 if the student keeps less of its teacher's quality, such as 0.95.",
)
@runs_options
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: str | None,
    print_recipe: bool,
    no_score: bool,
    min_retention: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Distil a student from one or several teachers; an interrupted run resumes bit for bit.

    The output has the layout of zoo pretrain; every command accepts its model/ directory.
    """
    if print_recipe:
        _print_recipe(options["recipe"], as_json=as_json)
        return
    from zoo.api.training import check_scoring, distill
    from zoo.errors import VerificationError

    check_scoring(
        score=not no_score, min_retention=min_retention, score_backend=options["score_backend"]
    )
    with reporting_once():
        training = distill(score=not no_score, file=file, **python_options(options))
    print_training(training, _score_lines(training), as_json=as_json)
    if min_retention is None or training.plan or training.teacher_shard:
        return
    try:
        # This follows the scores, which a failure does not hide.
        training.require_retention(min_retention)
    except VerificationError as error:
        output.fail(error.what, error.hint, error.exit_code, ())
        ctx.exit(error.exit_code)


def _print_recipe(name: str | None, *, as_json: bool) -> None:
    """Print a recipe as the YAML file of a user's own."""
    from zoo.distillation.recipes import any_recipe, recipe_values
    from zoo.io.yaml import dump_yaml

    values = recipe_values(any_recipe(name))
    text = dump_yaml(values, width=80)
    output.result(values, text.splitlines(), as_json=as_json, is_file=True)


def _score_lines(training: "Training") -> list[str]:
    """Return the table of scores: of a run, or the median and range over seeds."""
    from zoo.training.logging.scores import score_header, score_rows

    if training.scores is not None:
        scores = training.scores
        return ["", *output.table(score_rows(scores), score_header(scores))]
    if not training.spreads:
        return []
    rows = []
    for name, values in training.spreads.items():
        rows.append((name, *(f"{value:.4f}" for value in values.values())))
    return ["", *output.table(rows, ("", "median", "lowest", "highest"))]
