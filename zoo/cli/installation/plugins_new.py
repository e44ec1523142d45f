"""The command ``zoo plugins new``."""

import os
import shlex
from pathlib import Path

import click

from zoo.cli.options import common_options, shared_option
from zoo.cli.output import result
from zoo.cli.parameter_types import DirectoryType

KINDS = (
    "encoder",
    "decoder",
    "encoder-decoder",
    "recurrent",
    "objective",
    "task",
    "target",
    "loss",
    "embedding-loss",
    "metric",
)


@click.command(
    epilog="""\b
Examples:
  zoo plugins new mine
  zoo plugins new mine --like decoder -o ./zoo-mine
  zoo plugins new codegen --class-prefix CodeGen --like decoder
  zoo plugins new smooth --like objective
  zoo plugins new robust --like task
  zoo plugins new archive --like target
  zoo plugins new careful --like loss
  zoo plugins new robust --like embedding-loss
  zoo plugins new f_beta --like metric

NAME is the model_type in the config.json of the model's checkpoints, if there are any, and
--class-prefix begins the names of their classes, such as CodeGenForCausalLM. They identify
checkpoints of the family, and the models of transformers that outputs are compared with."""
)
@click.argument("name")
@click.option(
    "--like",
    type=click.Choice(KINDS),
    metavar="KIND",
    default="encoder",
    show_default=True,
    help=f"What to begin with: {', '.join(KINDS)}.",
)
@click.option(
    "--class-prefix",
    metavar="PREFIX",
    help="Prefix of the names of its classes.  [default: the words of NAME, capitalized]",
)
@shared_option("output", "Output directory.", metavar="DIR", type=DirectoryType(takes_url=False))
@common_options
def command(
    name: str, like: str, class_prefix: str | None, output: Path | None, as_json: bool
) -> None:
    """Write a project with a new family NAME, in the directory zoo-NAME by default.

    The project can be installed, passes its conformance tests, and every command works with it:
    configuration, model, weight rules, recipe, registry, tests and a workflow that runs them.
    With --like objective, task, target, loss, embedding-loss or metric, it has a pretraining
    objective, a task, an export target, a distillation loss, an embedding loss or a metric NAME
    instead.
    """
    from zoo.distillation.losses import BUILT_IN as LOSSES
    from zoo.exporting.targets import BUILT_IN as TARGETS
    from zoo.finetuning.embeddings.losses import BUILT_IN as EMBEDDING_LOSSES
    from zoo.objectives import OBJECTIVES
    from zoo.plugins.metrics import built_in_metrics
    from zoo.plugins.scaffold import KINDS as FAMILIES
    from zoo.plugins.scaffold import PluginNames, write_project
    from zoo.plugins.tasks import reserved_names

    names = PluginNames(name, class_prefix)
    directory = output or Path(names.distribution)
    reserved = {
        "objective": {*OBJECTIVES},
        "task": reserved_names(),
        "target": {*TARGETS},
        "loss": {*LOSSES},
        "embedding-loss": {*EMBEDDING_LOSSES},
        "metric": {*built_in_metrics()},
    }
    files = write_project(names, like, directory, reserved.get(like, set()))
    values: dict[str, object] = {"path": str(directory), "files": files}
    lines = [str(directory / file) for file in files]
    if like in FAMILIES:
        prefix = names.class_name
        values |= {"model_type": name, "class_prefix": prefix}
        lines.append(
            f"for checkpoints with the model_type {name} and classes such as {prefix}Model"
        )
    lines.append(f"next: zoo plugins install {shlex.quote(os.path.join('.', directory))}")
    result(values, lines, as_json=as_json)
