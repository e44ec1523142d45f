"""The command ``zoo export``."""

from typing import Any

import click

from zoo.cli.completion import HEAD
from zoo.cli.options import (
    TargetNameOption,
    adapter_option,
    common_options,
    force_option,
    global_tokens_option,
    hub_options,
    output_option,
    reference_argument,
    shared_option,
)
from zoo.cli.output import result
from zoo.cli.parameter_types import FiniteRange, LocalPath, TargetChoice
from zoo.cli.target_options import ExportCommand, add_target_options
from zoo.exporting.targets import ONNX
from zoo.overrides import override


class _Scales(click.Choice[str]):
    """Choice of an option whose value may be left out, for which click takes the next argument."""

    @override
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return f"{message} Give the model before this option, or a value after it."


@click.command(
    cls=ExportCommand,
    epilog="""\b
Examples:
  zoo export all-minilm-l6-v2
  zoo export ./model --head none -o ./graph
  zoo export all-minilm-l6-v2 --to openvino -o minilm-openvino
  zoo export ./model --to gguf --dtype q8_0 -o ./model-gguf
  zoo export all-minilm-l6-v2 --pooled --dim 128
  zoo export all-minilm-l6-v2 --only int8 -o minilm-int8
  zoo export all-minilm-l6-v2 --to static --dim 256 -o minilm-static
  zoo export ./classifier --int8 --eval dev.tsv --text sentence -o ./quantized
  zoo export ./model --int8 --int4 --max-drop 0.05 -o ./quantized
  zoo export ./model --adapter ./german --adapter ./legal \\
      --adapter-inputs -o ./graph""",
)
@reference_argument
@click.option(
    "--to",
    cls=TargetNameOption,
    type=TargetChoice(),
    metavar="TARGET",
    default=ONNX,
    help="Runtime to export to: {targets}. With --help, shows its options.  [default: onnx]",
)
@click.option("--onnx", is_flag=True, help="The same as --to onnx.")
@output_option("Output directory.  [default: NAME-TARGET in the working directory]")
@click.option("--head", type=HEAD, metavar="H", help="Head to export.  [default: the checkpoint's]")
@shared_option(
    "dtype",
    "Precision of the target, such as float32, float16, int8 or q8_0.  [default: float32]",
)
@click.option(
    "--int8",
    type=_Scales(["dynamic", "static"]),
    is_flag=False,
    flag_value="dynamic",
    help="Short for --dtype int8. In ONNX, `static` scales activations by --calibration texts.",
)
@click.option("--int4", is_flag=True, help="Short for --dtype int4.")
@add_target_options
@click.option(
    "--max-drop",
    type=FiniteRange(0, 1),
    metavar="X",
    help="Largest loss of a quantized model: of cosine, ranking, correlation, argmax, perplexity "
    "or metric.  [default: 0.01, and 0.6 for static]",
)
@adapter_option
@global_tokens_option
@shared_option(
    "eval_data",
    "Texts that models are compared on, one a line; the first 256 are read. Or a "
    "table with labels (*.tsv, *.csv, *.jsonl, *.parquet), for the metric of the task.  [default: "
    "books of the package]",
    type=LocalPath("file"),
    metavar="FILE",
)
@shared_option("text", "Column of the text in a table.  [default: text]")
@shared_option("pair", "Column of the second text in a table.")
@shared_option("label", "Column of the label in a table.  [default: label]")
@shared_option(
    "metric",
    "Metric of a table: of generated texts, such as bleu, or of a plugin.  [default: the task's]",
)
@click.option(
    "--unverified",
    is_flag=True,
    help="Write the model if its runtime is not installed, without a comparison.",
)
@click.option(
    "--allow-tokenizer-differences",
    is_flag=True,
    help="Accept that the runtime's own tokenizer cuts some texts differently.",
)
@shared_option(
    "licence",
    "Licence in the manifest and the model card, such as apache-2.0.  [default: the model's]",
)
@hub_options
@force_option
@common_options
def command(
    ref: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Export a model to another runtime, after comparing it with torch.

    The runtime opens what was written, and its outputs are compared with torch's at shapes that
    were not traced, with padding, and up to the maximum length. If they differ by more than the
    tolerance of the target, the exit code is 3 and nothing is written. If the runtime is not
    installed, nothing is written without --unverified.

    Quantized models are compared with float32 on text, or on labelled data by the metric of the
    task, and may lose --max-drop. If all layers together lose more, those that lose most stay in
    higher precision and are listed; if none can be quantized, the exit code is 3 and nothing is
    written. In ONNX, a quantized graph is added to the one in float32, which --only leaves out.

    To ONNX, a model that generates text is exported with a key-value cache: as one graph, or as
    encoder and decoder.
    """
    from zoo.api.exporting import export

    exported = export(ref, eval=options.pop("eval_data"), **options)
    lines = [*exported.report.lines(), f"wrote {exported.path}"]
    result(exported.to_dict(), lines, as_json=as_json)
