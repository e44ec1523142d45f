"""The command ``zoo distill``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import output
from zoo.cli.completion import OBJECTIVE, PRESET, RECIPE
from zoo.cli.options import common_options, count_option, shared_option
from zoo.cli.parameter_types import PATH, REFERENCE, FiniteRange, PathText
from zoo.cli.preflight import check_settings
from zoo.cli.training.options import (
    SHARED_SETTINGS,
    config_file,
    data_option,
    label_option,
    overrides_from_options,
    pair_option,
    skip_invalid_option,
    text_option,
    training_options,
)
from zoo.cli.training.runs import processes, run_arguments, runs_options, train
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.training.logging.scores import ScoresRecord

# Option -> path of the setting.
SETTINGS = SHARED_SETTINGS | {
    "teacher": "distillation.teachers",
    "student": "student.name",
    "recipe": "distillation.recipe",
    "train": "data.paths",
    "eval_data": "data.eval_paths",
    "objective": "objective",
    "task": "task",
    "text": "data.text",
    "pair": "data.pair",
    "label": "data.label",
    "skip_invalid": "data.skip_invalid",
    "preset": "preset",
    "align": "distillation.align",
    "teacher_backend": "distillation.teacher_backend",
    "cache_teacher": "distillation.cache_teacher",
    "global_batch_tokens": "global_batch_tokens",
}
# Options whose settings differ if there is a task.
LABELLED = {"train": "data.train", "eval_data": "data.eval"}
TABLES = (".csv", ".tsv")  # Endings of files that are not read as text.


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
)
@data_option(
    "eval_data",
    "Held-out text for evaluation; with --task, labelled data.",
)
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
    type=PathText("output"),
    metavar="DIR",
    help="Keep the teacher's outputs, and read them there.",
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
def command(ctx: click.Context, /, file: str | None, **options: Any) -> None:
    """Distil a student from one or several teachers; an interrupted run resumes bit for bit.

    The output has the layout of zoo pretrain; every command accepts its model/ directory.
    """
    if options["print_recipe"]:
        _print_recipe(options["recipe"], as_json=options["as_json"])
        return
    has_run = options["resume"] or options["continue_from"]
    if file is None and not options["teacher"] and not has_run:
        raise click.UsageError("name a teacher and a student, or give --resume RUN", ctx)
    if options["no_score"] and (options["min_retention"] is not None or options["score_backend"]):
        raise click.UsageError("--no-score leaves nothing to measure or to require", ctx)
    values = settings_file(ctx, file)
    overrides = overrides_from_options(ctx, setting_paths(options, values), options)
    check_settings("distill", values, overrides, config_file(file))
    from zoo.distillation.runs import DistillRun

    with processes(options) as dist:
        run = DistillRun(
            values,
            dist,
            overrides=overrides,
            **run_arguments(options),
            file=config_file(file),
        )
        paths, runs = train(ctx, run, options)
    if not dist.is_main_process:
        return
    if runs:
        _finish_seeds(ctx, runs, options, overrides)
    else:
        _finish_run(ctx, paths, options, overrides)


def _print_recipe(name: str | None, *, as_json: bool) -> None:
    """Print a recipe as the YAML file of a user's own."""
    from zoo.distillation.recipes import any_recipe, recipe_values
    from zoo.io.yaml import dump_yaml

    values = recipe_values(any_recipe(name))
    text = dump_yaml(values, width=80)
    output.result(values, text.splitlines(), as_json=as_json, is_file=True)


def setting_paths(options: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """Return option -> path of the setting: data is text, or labelled with a task."""
    from zoo.errors import UsageError
    from zoo.training.config.overrides import read_config_file
    from zoo.training.state.run_manifest import SETTINGS as RECORD

    names = set(values)
    run = options["resume"] or options["continue_from"]
    if run and (run / RECORD).is_file():
        names.update(read_config_file(run / RECORD))
    for assignment in options["assignments"]:
        names.add(assignment.partition("=")[0].strip())
    if options["task"] is not None or "task" in names:
        return {**SETTINGS, **LABELLED}
    for path in (*options["train"], *options["eval_data"]):
        if Path(path).suffix.lower() in TABLES:
            raise UsageError(f"{path} is a table of labelled data", "name its task with --task")
    return SETTINGS


def _finish_run(
    ctx: click.Context,
    paths: Mapping[str, str],
    options: dict[str, Any],
    overrides: dict[str, Any],
) -> None:
    """Score a run, and print its paths and scores."""
    from zoo.training.logging.scores import score_header, score_rows

    value: dict[str, Any] = dict(paths)
    lines = [f"{name}: {path}" for name, path in paths.items()]
    scores = _score([Path(paths["run"])], options, overrides)
    for score in scores:
        value["scores"] = _as_json(score)
        lines += ["", *output.table(score_rows(score), score_header(score))]
    output.result(value, lines, as_json=options["as_json"])
    _require_retention(ctx, scores, options["min_retention"])


def _finish_seeds(
    ctx: click.Context,
    directories: Sequence[Path],
    options: dict[str, Any],
    overrides: dict[str, Any],
) -> None:
    """Score the runs of several seeds, and print median and range."""
    from zoo.distillation.runs import DistillRun
    from zoo.distillation.scoring.seeds import summarize_seeds
    from zoo.finetuning.runs import MODEL, SUMMARY

    path = directories[0].parent
    runs = [DistillRun.last_stage(run) for run in directories]
    scores = _score(runs, options, overrides)
    summary = summarize_seeds(path, runs, scores)
    paths = {"runs": path, "model": path / MODEL, "summary": path / SUMMARY}
    value: dict[str, Any] = {name: str(place) for name, place in paths.items()}
    lines = [f"{name}: {place}" for name, place in paths.items()]
    if not scores:
        output.result(value, lines, as_json=options["as_json"])
        return
    value["scores"] = {}
    for run, score in zip(runs, scores, strict=True):
        value["scores"][str(run.relative_to(path))] = _as_json(score)
    rows = []
    for name, spread in summary.items():
        rows.append((name, *(f"{number:.4f}" for number in spread.values())))
    lines += ["", *output.table(rows, ("", "median", "lowest", "highest"))]
    output.result(value, lines, as_json=options["as_json"])
    by_retention = sorted(scores, key=lambda score: score.retention or 0)
    median_score = by_retention[(len(scores) - 1) // 2]
    _require_retention(ctx, [median_score], options["min_retention"])


def _score(
    runs: Sequence[Path], options: dict[str, Any], overrides: dict[str, Any]
) -> "list[ScoresRecord]":
    """Return the scores of runs; none with ``--no-score``."""
    from zoo.distillation.scoring.score import score_run

    if options["no_score"]:
        return []
    return [
        score_run(
            run,
            device=options["device"],
            backends=options["score_backend"],
            offline=options["offline"],
            given=overrides,
        )
        for run in runs
    ]


def _require_retention(
    ctx: click.Context, scores: "Sequence[ScoresRecord]", least: float | None
) -> None:
    """Exit with code 3 if a student keeps less than ``--min-retention``."""
    from zoo.distillation.scoring.score import require_retention
    from zoo.errors import VerificationError

    if least is None:
        return
    try:
        for score in scores:
            require_retention(score, least)
    except VerificationError as error:
        output.fail(error.what, error.hint, error.exit_code, ())
        ctx.exit(error.exit_code)


def _as_json(scores: "ScoresRecord") -> Any:
    import msgspec

    return msgspec.to_builtins(scores)


def settings_file(ctx: click.Context, file: str | None) -> dict[str, Any]:
    """Return the settings of a file, or none."""
    from zoo.training.config.overrides import read_config_file

    if file is None:
        return {}
    path: Path | None = config_file(file)
    if path is None:
        raise click.UsageError(f"{file} is not a YAML file", ctx)
    return read_config_file(path)
