"""The command ``zoo look``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from zoo.cli.options import (
    common_options,
    count_option,
    device_option,
    hub_options,
    reference_argument,
    shared_option,
)
from zoo.cli.output import line, result
from zoo.cli.parameter_types import PATH, IntegerRange, OutputFile, ReferenceType
from zoo.cli.texts import refuse_file_name, text_is_text_option
from zoo.inspection.formats import VIEWS
from zoo.report.files import PAGES

PAGE = "look.html"
# Options of looks at one or two texts -> their defaults.
ONE_TEXT_OPTIONS = {
    "text_target": None,
    "top_k": 5,
    "view": None,
    "layer": None,
    "head": None,
    "revision": None,
    "lock": None,
}


@click.command(
    epilog="""\b
Examples:
  zoo look MODEL "She sat on the [MASK] of the river."
  zoo look DECODER "The river flows" --json > numbers.json
  zoo look SEQ2SEQ "summarize: a long text" --text-target "a text"

\b
Two texts are compared, such as a word with two meanings:
  zoo look MODEL "on the bank" "the bank paid" -o bank.html

\b
Models are compared on the same text, next to each other:
  zoo look MODEL "She sat on the bank." --compare DECODER --compare SEQ2SEQ

\b
Layers of two models, or two checkpoints of a run, over many texts:
  zoo look MODEL --compare OTHER --input texts.txt -o layers.svg
  zoo look RUN/checkpoints/step-00000100 --compare RUN/model --input texts.txt

\b
A picture for a paper or a slide has one view:
  zoo look MODEL "She sat on the bank." -o bank.svg --layer 3 --head 5
  zoo look MODEL "She sat on the [MASK]." -o mask.png --view predictions"""
)
@reference_argument
@click.argument("texts", nargs=-1, metavar="TEXT [TEXT]")
@click.option(
    "--compare",
    metavar="REF",
    multiple=True,
    type=ReferenceType(),
    help="Model that reads the same texts, next to REF on the page. May be repeated.",
)
@shared_option(
    "source",
    "Compare the layers of REF and --compare over the texts of a file: linear CKA, SVCCA and "
    "PWCCA. Without --compare, the layers of REF with each other.",
    type=PATH,
)
@click.option(
    "--unit",
    type=click.Choice(["tokens", "words", "sentences"]),
    help="What has a vector, with --input.  [default: tokens; words if the models cut the texts "
    "into different ones]",
)
@click.option(
    "--text-target",
    metavar="TEXT",
    help="Text that the decoder of an encoder-decoder reads.  [default: what it generates]",
)
@text_is_text_option
@shared_option(
    "max_seq_len", "Cut texts at this number of tokens.  [default: 64]", type=IntegerRange(1)
)
@count_option("--top-k", "Number of predictions to keep for each position.", default=5)
@shared_option(
    "output",
    f"Page (.html) or picture (.svg, .png) to write.  [default: {PAGE}, or none with --json]",
    metavar="FILE",
    type=OutputFile(),
)
@click.option(
    "--view",
    type=click.Choice(VIEWS),
    help="What a picture shows.  [default: attention; similarity if the model computes none]",
)
@click.option(
    "--layer",
    metavar="N",
    type=IntegerRange(0),
    help="Layer that a picture shows; 0 is the embeddings.  [default: the last one; for "
    "predictions, all]",
)
@click.option(
    "--head",
    metavar="N",
    type=IntegerRange(1),
    help="Head whose attention a picture shows.  [default: the mean of all heads]",
)
@shared_option("force", "Replace the file.")
@device_option
@hub_options
@common_options
def command(
    ref: str,
    texts: tuple[str, ...],
    source: str | None,
    unit: str | None,
    output: Path | None,
    as_json: bool,
    text_is_text: bool,
    **options: Any,
) -> None:
    """Draw what the layers of a model compute for one or two texts, as a page or a picture.

    The page has the attention of all heads, the similarity of the tokens' vectors in all layers,
    what each layer predicts through the model's head, and the mix of layers where the model has
    one. It is one file without network access. A name that ends in .svg or .png writes a picture
    of one view instead. --json prints all numbers exactly. With --input, the page and the
    picture have the similarity of layers over many texts.
    """
    from zoo.api.inspection import look

    if source is not None:
        _compare_layers(ref, texts, source, unit, output, options, as_json=as_json)
        return
    if not texts:
        raise click.UsageError("Missing argument 'TEXT'.", click.get_current_context())
    if unit is not None:
        raise click.UsageError("--unit is for --input FILE", click.get_current_context())
    if not text_is_text:
        refuse_file_name(texts, '"$(cat FILE)"')
    target = output or (None if as_json else Path(PAGE))
    output_name = "page" if target is None or target.suffix.lower() in PAGES else "picture"
    numbers = look(ref, texts, output=target, **options)
    if as_json:
        value = numbers.to_json()
        if target is not None:
            value[output_name] = str(target)
        result(value, (), as_json=True)
    else:
        line(f"{output_name}: {target}")


def _compare_layers(
    ref: str,
    texts: Sequence[str],
    source: str,
    unit: Any,
    output: Path | None,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Compare the layers of one model or two over the texts of a file."""
    from zoo.api.layers import layer_similarity
    from zoo.inference.processing.inputs import read_records
    from zoo.io.output.overwrite import check_file
    from zoo.report.files import check_report_file, write_report_file

    context = click.get_current_context()
    if texts:
        raise click.UsageError("texts are given both as arguments and by --input", context)
    if len(options["compare"]) > 1:
        raise click.UsageError("--input compares two models; give --compare once", context)
    for name, default in ONE_TEXT_OPTIONS.items():
        if options[name] != default:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} is not for --input", context)
    target = output or (None if as_json else Path(PAGE))
    if target is not None:
        check_report_file(target, "a comparison of layers")
        check_file(target, force=options["force"])
    similarity = layer_similarity(
        ref,
        *options["compare"],
        texts=[record.text for record in read_records(source=source)],
        unit=unit,
        max_seq_len=options["max_seq_len"],
        device=options["device"],
        offline=options["offline"],
    )
    value = similarity.to_json()
    if target is not None:
        write_report_file(target, similarity.to_html, similarity.to_svg)
        value["output"] = str(target)
    first, second = similarity.layers
    last = similarity.matrices["cka"][-1, -1]
    lines = [f"{similarity.vectors:,} {similarity.unit} of {similarity.texts:,} texts"]
    lines.append(f"linear CKA of {first[-1]} and {second[-1]}: {last:.4f}")
    lines.append(f"output: {target}")
    result(value, lines, as_json=as_json)
