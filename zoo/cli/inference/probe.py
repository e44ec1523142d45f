"""The command ``zoo probe``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import (
    common_options,
    count_option,
    device_option,
    hub_options,
    reference_argument,
    shared_option,
)
from zoo.cli.output import result, table
from zoo.cli.parameter_types import (
    FiniteRange,
    InputFile,
    IntegerRange,
    OutputFile,
    PluginChoice,
    ReferenceType,
)
from zoo.errors import UsageError
from zoo.io.numbers import parse_int
from zoo.overrides import override
from zoo.probing.settings import POOLINGS, PROBES, ProbeRecipe
from zoo.probing.tasks import BUILT_IN, PROBE_TASKS

if TYPE_CHECKING:
    from zoo.probing.report import Probing

RECIPE = ProbeRecipe()


class LayersType(click.types.StringParamType):
    """Numbers of layers, with commas between them."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        layers = [parse_int(part.strip()) for part in value.split(",")]
        if None in layers:
            raise UsageError(f"--layers {value} is not a list of numbers", "such as 0,6,-1")
        return layers


@click.command(
    epilog="""\b
Examples:
  zoo probe REF --task token-classification --train ud.conllu \\
      --eval ud-dev.conllu
  zoo probe REF --task text-classification --train train.tsv \\
      --eval dev.tsv --seeds 5 --probe mlp -o layers.html
  zoo probe REF --task token-classification --train ner.conll \\
      --eval dev.conll --compare OTHER --compare RUN/model

Layer 0 is the embeddings. The last row is a learned mix of all layers."""
)
@reference_argument
@click.option(
    "--task",
    required=True,
    type=PluginChoice(BUILT_IN, PROBE_TASKS.names),
    help="What is predicted.",
)
@shared_option(
    "train",
    "Labelled texts or words to train on, as zoo finetune reads them; may be repeated.",
    required=True,
    multiple=True,
    type=InputFile(),
)
@shared_option(
    "eval_data",
    "The same, to evaluate; may be repeated.",
    required=True,
    multiple=True,
    type=InputFile(),
)
@shared_option("text", "Column of the text.  [default: text]")
@shared_option("pair", "Column of the second text.")
@shared_option("label", "Column of the label.  [default: label]")
@shared_option("skip_invalid")
@click.option(
    "--compare",
    metavar="REF",
    multiple=True,
    type=ReferenceType(),
    help="Model that is probed in the same way.  May be repeated.",
)
@click.option(
    "--layers", metavar="N,...", type=LayersType(), help="Layers, such as 0,6,-1.  [default: all]"
)
@click.option(
    "--pooling",
    type=click.Choice(POOLINGS),
    help="Token vectors to one.  [default: mean of a text or span, first of a word]",
)
@click.option(
    "--probe",
    type=click.Choice(PROBES),
    default=RECIPE.probe,
    show_default=True,
    help="The classifier; mlp has a hidden layer.",
)
@count_option(
    "--hidden-size", f"Width of the hidden layer of mlp.  [default: {RECIPE.hidden_size}]"
)
@click.option(
    "--l2",
    metavar="X",
    type=FiniteRange(0),
    default=RECIPE.l2,
    show_default=True,
    help="The loss has X / 2 times the sum of squared weights.",
)
@shared_option(
    "epochs",
    "Largest number of epochs.",
    type=IntegerRange(0, min_open=True),
    default=RECIPE.epochs,
    show_default=True,
)
@shared_option(
    "learning_rate",
    "Learning rate of Adam at first; halved after each epoch without progress.",
    type=FiniteRange(0, min_open=True),
    default=RECIPE.learning_rate,
    show_default=True,
)
@shared_option(
    "batch_size",
    "Number of examples per step.",
    type=IntegerRange(1),
    default=RECIPE.batch_size,
    show_default=True,
)
@click.option(
    "--validation-fraction",
    metavar="X",
    type=FiniteRange(0, 1),
    default=RECIPE.validation_fraction,
    show_default=True,
    help="Share of the training texts that decides when to stop.",
)
@count_option("--seeds", "Train N probes of each layer, with seeds from 0.", default=1)
@click.option(
    "--control",
    is_flag=True,
    help="Also probe a control task of random labels, for the selectivity.",
)
@click.option(
    "--mdl",
    is_flag=True,
    help="Also measure the minimum description length of the labels, by online coding.",
)
@shared_option(
    "max_seq_len",
    "Cut texts at this number of tokens.  [default: the model's limit]",
    type=IntegerRange(1),
)
@shared_option(
    "output",
    "Page (.html) or picture (.svg, .png) of the curves by layer to write.",
    metavar="FILE",
    type=OutputFile(),
)
@shared_option("force", "Replace the file.")
@device_option
@hub_options
@common_options
def command(
    ref: str,
    eval_data: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure what each frozen layer of a model knows about a task.

    A small classifier is trained on the vectors of each layer, which come from one pass over the
    texts, and evaluated on others.
    """
    from zoo.api.probing import probe

    probing = probe(ref, eval=eval_data, output=output, **options)
    value = probing.to_json()
    lines = list(_lines(probing))
    if output is not None:
        value["output"] = str(output)
        lines += ["", f"curves: {output}"]
    result(value, lines, as_json=as_json)


def _lines(probing: "Probing") -> Iterator[str]:
    yield from probing.facts()
    for name, model in zip(probing.model_names, probing.models, strict=True):
        yield ""
        yield name
        yield from table(probing.rows(model), probing.header, drops=probing.dropped_columns)
