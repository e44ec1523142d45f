"""The command ``zoo export``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import (
    TargetNameOption,
    adapter_option,
    common_options,
    force_option,
    hub_options,
    output_option,
    reference_argument,
    shared_option,
)
from zoo.cli.output import result
from zoo.cli.parameter_types import FiniteRange, LocalPath, TargetChoice
from zoo.cli.target_options import ExportCommand, add_target_options, configured_target
from zoo.exporting.targets import ONNX
from zoo.overrides import override

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zoo.checkpoint import Checkpoint
    from zoo.exporting.quantization.variants import QuantizationPlan
    from zoo.exporting.targets.base import ExportTarget

COLUMNS = ("text", "pair", "label")
QUANTIZATION = ("max_drop", "eval_data", *COLUMNS)
SETTINGS = ("force", "unverified", "allow_tokenizer_differences")


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
    head: str | None,
    dtype: str | None,
    int8: str | None,
    int4: bool,
    adapter: tuple[str, ...],
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
    written. In ONNX, a quantized graph is added to the one in float32, which --only leaves out.

    To ONNX, a model that generates text is exported with a key-value cache: as one graph, or as
    encoder and decoder.
    """
    from zoo.checkpoint import check_tokenizer
    from zoo.conversion.cache import resolve_adapted
    from zoo.errors import UsageError
    from zoo.hub.reference import resolve
    from zoo.io.output.overwrite import check_target

    if onnx and to not in (None, ONNX):
        raise UsageError(f"--onnx and --to {to} are two targets", "give one of them")
    settings = {name: options.pop(name) for name in SETTINGS}
    quantization = {name: options.pop(name) for name in QUANTIZATION}
    source = {name: options.pop(name) for name in ("revision", "offline", "lock")}
    target, precisions = _configured(to or ONNX, dtype, int8, int4, options)
    output = output or Path(f"{resolve(ref).short_name}-{target.name}")
    check_target(output, force=settings["force"])
    keeps_adapters = target.options.keeps_adapters
    applied = adapter[:1] if keeps_adapters else adapter
    checkpoint = resolve_adapted(ref, applied, head=head, **source)
    adapted = [checkpoint]
    if keeps_adapters:
        for path in adapter[1:]:
            adapted.append(resolve_adapted(ref, [path], head=head, **source))
    check_tokenizer(checkpoint)
    if licence is not None:
        checkpoint = checkpoint.with_licence(licence)
    from zoo.adapters.merge import as_whole_model
    from zoo.exporting.gate import export_model  # imports torch
    from zoo.exporting.targets.base import ExportSettings

    if keeps_adapters:
        settings["adapters"] = adapted
    else:
        checkpoint = as_whole_model(checkpoint)
    precision, *more_precisions = precisions
    plan = _quantization_plan(checkpoint, target, precisions, **quantization)
    report = export_model(
        target,
        checkpoint,
        output,
        ExportSettings(
            precision=precision,
            more_precisions=tuple(more_precisions),
            quantization=plan,
            **settings,
        ),
    )
    result(report.to_dict(), [*report.lines(), f"wrote {output}"], as_json=as_json)


def _configured(
    name: str, dtype: str | None, int8: str | None, int4: bool, values: "Mapping[str, Any]"
) -> "tuple[ExportTarget, tuple[str, ...]]":
    """Return a target with its options, and the precisions to write."""
    from zoo.errors import UsageError
    from zoo.exporting.targets import find_target

    option_values = dict(values)
    target = find_target(name)
    precisions: list[str] = []
    if dtype is not None:
        precisions.append(dtype)
    if int8:
        _require_precision(target, "int8")
        precisions.append("int8")
    if int4:
        _require_precision(target, "int4")
        precisions.append("int4")
    if int8 is not None and "int8" in target.options_type.__struct_fields__:
        option_values["int8"] = int8
    elif int8 not in (None, "dynamic"):
        raise UsageError(f"--int8 {int8} is not an option of --to {name}", f"leave {int8} out")
    target = configured_target(name, option_values)
    return target, target.resolve_precisions(precisions)


def _require_precision(target: "ExportTarget", precision: str) -> None:
    """Check that a target has a precision that an option is short for."""
    from zoo.errors import UsageError

    try:
        target.check_precision(precision)
    except UsageError as error:
        raise UsageError(
            f"--{precision} is not an option of --to {target.name}",
            f"--dtype takes {', '.join(target.precisions)}",
        ) from error


def _quantization_plan(
    checkpoint: "Checkpoint",
    target: "ExportTarget",
    precisions: "Sequence[str]",
    max_drop: float | None,
    eval_data: Path | None,
    **columns: str | None,
) -> "QuantizationPlan | None":
    """Return how quantized models are compared, or ``None`` for none."""
    from zoo.errors import UsageError
    from zoo.exporting.quantization.variants import QuantizationPlan
    from zoo.exporting.targets.base import unused_option
    from zoo.tasks.metric import task_metric

    quantized = [name for name in precisions if target.precisions[name].tolerance is None]
    if not quantized:
        for name, value in {"max_drop": max_drop, "eval": eval_data, **columns}.items():
            if value is not None:
                flag = f"--{name.replace('_', '-')}"
                raise unused_option(flag, _quantizing_options(target))
        return None
    column_names = {name: column for name, column in columns.items() if column is not None}
    metric = None
    if eval_data is not None:
        metric = task_metric(checkpoint, eval_data, column_names)
    if metric is not None:
        eval_data = None
    elif column_names:
        flag = f"--{next(iter(column_names))}"
        raise UsageError(f"{flag} names a column of a table", "give --eval a file such as dev.tsv")
    if max_drop is None:
        max_drop = target.precisions[quantized[0]].max_drop
    return QuantizationPlan(max_drop=max_drop, eval_file=eval_data, metric=metric)


def _quantizing_options(target: "ExportTarget") -> str:
    """Return the options that make a quantized model, as a phrase."""
    names = [name for name, value in target.precisions.items() if value.tolerance is None]
    if target.combines_precisions:
        return " or ".join(f"--{name}" for name in names)
    return f"--dtype {' or '.join(names)}"
