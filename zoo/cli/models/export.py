"""The command ``zoo export``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import (
    FiniteRange,
    IntegerRange,
    LocalPath,
    TargetChoice,
    TargetOption,
    adapter_option,
    common_options,
    force_option,
    hub_options,
    output_option,
    reference_argument,
    shared_option,
)
from zoo.cli.output import result
from zoo.exporting.targets import ONNX
from zoo.overrides import override

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zoo.checkpoint import Checkpoint
    from zoo.exporting.quantization.variants import QuantizationPlan
    from zoo.exporting.targets.base import ExportTarget

COLUMNS = ("text", "pair", "label")
BLOCK_SIZE = 32  # default
QUANTIZATION = ("int8", "int4", "block_size", "max_drop", "eval_data", "calibration_file", *COLUMNS)
# options that only some targets take, see ``ExportTarget.options``
SPECIAL = {
    "cache": "--cache",
    "opset": "--opset",
    "optimize": "--optimize",
    "int8": "--int8",
    "int4": "--int4",
    "only": "--only",
    "block_size": "--block-size",
    "calibration_file": "--calibration",
    "pooled": "--pooled",
    "dim": "--dim",
    "sif_coefficient": "--sif-coefficient",
    "adapter_inputs": "--adapter-inputs",
}
SETTINGS = ("force", "unverified", "allow_tokenizer_differences")
GRAPH = ("cache", "opset", "optimize", "pooled", "dim", "sif_coefficient")


class _Scales(click.Choice[str]):
    """Choice of an option whose value may be left out, for which click takes the next argument."""

    @override
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return f"{message} Give the model before this option, or a value after it."


@click.command(
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
      --adapter-inputs -o ./graph"""
)
@reference_argument
@click.option(
    "--to",
    cls=TargetOption,
    type=TargetChoice(),
    metavar="TARGET",
    help="Runtime to export to: {targets}.  [default: onnx]",
)
@click.option("--onnx", is_flag=True, help="The same as --to onnx.")
@output_option("Output directory.  [default: NAME-TARGET in the working directory]")
@click.option("--head", metavar="H", help="Head to export.  [default: the checkpoint's]")
@shared_option(
    "dtype",
    "Precision of the target, such as float32, float16, int8 or q8_0.  [default: float32]",
)
@click.option(
    "--cache/--no-cache",
    default=None,
    help="Whether the ONNX graph has a key-value cache.  [default: if the head generates text]",
)
@click.option(
    "--optimize", is_flag=True, help="Fuse layers into operators that only ONNX Runtime has."
)
@click.option(
    "--pooled",
    is_flag=True,
    help="Add a graph with the modules of a sentence encoder: pooling, Dense, normalization.",
)
@click.option(
    "--dim",
    type=IntegerRange(1),
    metavar="N",
    help="Keep the first N numbers of the embeddings of --pooled; with --to static, the number of "
    "principal components, by default 256.",
)
@click.option(
    "--sif-coefficient",
    type=FiniteRange(0, 1),
    metavar="X",
    help="Weight of rare tokens in static embeddings; 0 for equal weights.  [default: 0.0001]",
)
@click.option("--opset", type=IntegerRange(), metavar="N", help="ONNX operator set version.")
@click.option(
    "--int8",
    type=_Scales(["dynamic", "static"]),
    is_flag=False,
    flag_value="dynamic",
    help="Add graphs with 8-bit weights; `static` scales activations by --calibration texts.",
)
@click.option("--int4", is_flag=True, help="Add graphs with 4-bit weights, for text generation.")
@click.option(
    "--only",
    type=click.Choice(["int8", "int4"]),
    help="Write only the graphs with 8-bit or 4-bit weights, and none in float32.",
)
@click.option(
    "--block-size",
    type=click.Choice(["32", "64", "128"]),
    help="Number of 4-bit weights that share a scale.  [default: 32]",
)
@click.option(
    "--max-drop",
    type=FiniteRange(0, 1),
    metavar="X",
    help="Largest loss of a quantized model: of cosine, ranking, correlation, argmax, perplexity "
    "or metric.  [default: 0.01, and 0.6 for static]",
)
@adapter_option
@click.option(
    "--adapter-inputs",
    is_flag=True,
    help="Keep the tensors of an adapter as inputs of the graph, so that it serves each --adapter, "
    "and others like them.",
)
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
@click.option(
    "--calibration",
    "calibration_file",
    type=LocalPath("file"),
    metavar="FILE",
    help="Texts for `--int8 static`, one a line; the first 256 are read.",
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
    to: str | None,
    onnx: bool,
    output: Path | None,
    only: str | None,
    licence: str | None,
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
    written. For ONNX, --int8, --int4 and --only quantize; for other targets, --dtype does.

    To ONNX, a model that generates text is exported with a key-value cache: as one graph, or as
    encoder and decoder.
    """
    from zoo.checkpoint import check_tokenizer
    from zoo.conversion.cache import resolve_adapted
    from zoo.errors import UsageError
    from zoo.exporting.targets import find_target
    from zoo.hub.reference import resolve
    from zoo.io.output.overwrite import check_target

    if onnx and to not in (None, ONNX):
        raise UsageError(f"--onnx and --to {to} are two targets", "give one of them")
    target = find_target(to or ONNX)
    precision = target.check_precision(options.pop("dtype"))
    _check_options(target, {**options, "only": only})
    if only is not None:
        other = "int4" if only == "int8" else "int8"
        if options[other]:
            raise UsageError(f"--only {only} leaves out what --{other} adds", "give one of them")
        options[only] = options[only] or ("dynamic" if only == "int8" else True)
    output = output or Path(f"{resolve(ref).short_name}-{target.name}")
    settings = {name: options.pop(name) for name in SETTINGS}
    graph = {name: options.pop(name) for name in GRAPH}
    quantization = {name: options.pop(name) for name in QUANTIZATION}
    adapters, as_inputs = options.pop("adapter"), options.pop("adapter_inputs")
    check_target(output, force=settings["force"])
    applied = adapters[:1] if as_inputs else adapters
    checkpoint = resolve_adapted(ref, applied, **options)
    more = adapters[1:] if as_inputs else ()
    adapted = [checkpoint, *(resolve_adapted(ref, [path], **options) for path in more)]
    check_tokenizer(checkpoint)
    if licence is not None:
        checkpoint = checkpoint.with_licence(licence)
    from zoo.exporting.targets.base import ExportSettings
    from zoo.inference.merge import as_whole_model  # imports torch

    if not as_inputs:
        checkpoint = as_whole_model(checkpoint)

    plan = _quantization(checkpoint, target, precision, **quantization)
    if target.options:
        given = {**graph, "only": only, "adapters": adapted if as_inputs else ()}
        settings["options"] = {n: value for n, value in given.items() if n in target.options}
    report = target.export(
        checkpoint, output, ExportSettings(precision=precision, quantization=plan, **settings)
    )
    result(report.to_dict(), [*report.lines(), f"wrote {output}"], as_json=as_json)


def _check_options(target: "ExportTarget", given: "Mapping[str, Any]") -> None:
    """Check that the options that only some targets take are for this one."""
    from zoo.errors import UsageError

    for name, flag in SPECIAL.items():
        unset = (None,) if name == "cache" else (None, False)
        option = "adapters" if name == "adapter_inputs" else name
        if given[name] not in unset and option not in target.options:
            quantizes = name in ("int8", "int4", "only")
            raise UsageError(
                f"{flag} is not an option of --to {target.name}",
                f"--dtype takes {', '.join(target.precisions)}" if quantizes else "leave it out",
            )


def _quantization(
    checkpoint: "Checkpoint",
    target: "ExportTarget",
    precision: str,
    int8: str | None,
    int4: bool,
    block_size: str | None,
    max_drop: float | None,
    eval_data: Path | None,
    calibration_file: Path | None,
    **columns: str | None,
) -> "QuantizationPlan | None":
    """Return how quantized models are made and compared, or ``None`` for none."""
    from zoo.errors import UsageError
    from zoo.exporting.quantization.quantize import Quantization
    from zoo.exporting.quantization.variants import QuantizationPlan
    from zoo.tasks.metric import task_metric

    _require_used({"block_size": block_size}, int4, "--int4")
    _require_used({"calibration": calibration_file}, int8 == "static", "--int8 static")
    methods = [Quantization("int8", static=int8 == "static")] if int8 else []
    if int4:
        methods.append(Quantization("int4", block_size=int(block_size or BLOCK_SIZE)))
    quantizing = [name for name, one in target.precisions.items() if one.tolerance is None]
    ways = "--int8 or --int4" if target.name == ONNX else f"--dtype {' or '.join(quantizing)}"
    quantized = bool(methods) or precision in quantizing
    _require_used({"max_drop": max_drop, "eval": eval_data, **columns}, quantized, ways)
    if not quantized:
        return None
    named = {name: column for name, column in columns.items() if column is not None}
    metric = task_metric(checkpoint, eval_data, named) if eval_data else None
    if metric is not None:
        eval_data = None
    elif named:
        flag = f"--{next(iter(named))}"
        raise UsageError(f"{flag} names a column of a table", "give --eval a file such as dev.tsv")
    drop = target.max_drop if max_drop is None else max_drop
    return QuantizationPlan(methods, drop, eval_data, calibration_file, metric)


def _require_used(values: "Mapping[str, object]", used: bool, ways: str) -> None:
    """Check that options of quantized models are given with an option that makes one."""
    from zoo.errors import UsageError

    for name, value in values.items():
        if value is not None and not used:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is for quantized models", f"give {ways}, or leave it out")
