"""``zoo.export``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.api.arguments import AnyPath, AnyPaths, as_path, as_reference, checked
from zoo.errors import UsageError
from zoo.io.paths import as_paths

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.quantization.plan import QuantizationPlan
    from zoo.exporting.report import ExportReport
    from zoo.exporting.targets.base import ExportTarget

Int8Scales = Literal["dynamic", "static"]


@dataclass(frozen=True)
class Export:
    """Result of ``zoo.export``: the directory that was written, and the comparison with torch."""

    path: Path
    report: "ExportReport"

    def _repr_html_(self) -> str:
        """Return the files and the difference from torch as a table, for notebooks."""
        from zoo.report.cells import fields_cell

        report = self.report
        fields: dict[str, object] = {
            "runtime": report.title,
            "precision": report.dtype,
            "files": ", ".join(report.files),
            "bytes": report.bytes,
            "path": self.path,
        }
        if report.max_rel is not None:
            fields["largest difference from torch"] = report.max_rel
        if report.agreement is not None:
            fields["on text"] = report.agreement.line()
        if report.unverified is not None:
            fields["not compared with torch"] = report.unverified
        return fields_cell("", fields)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``zoo export --json`` prints."""
        return self.report.to_dict()


@checked
def export(
    ref: AnyPath,
    *,
    to: str = "onnx",
    onnx: bool = False,
    output: AnyPath | None = None,
    head: str | None = None,
    dtype: str | None = None,
    int8: Int8Scales | bool | None = None,
    int4: bool = False,
    cache: bool | None = None,
    optimize: bool | None = None,
    pooled: bool | None = None,
    dim: int | None = None,
    opset: int | None = None,
    only: str | None = None,
    block_size: int | None = None,
    calibration: AnyPath | None = None,
    adapter_inputs: bool | None = None,
    sif_coefficient: float | None = None,
    max_drop: float | None = None,
    adapter: AnyPaths = (),
    global_tokens: str | None = None,
    eval: AnyPath | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    metric: str | None = None,
    unverified: bool = False,
    allow_tokenizer_differences: bool = False,
    licence: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
    force: bool = False,
    **options: Any,
) -> Export:
    """Export a model to another runtime, compared with torch; ``zoo export`` does the same.

    Nothing is written if the runtime's outputs differ from torch's by more than the tolerance of
    the target, or if a quantized model loses more than ``max_drop``.

    Args:
        ref: the model, see ``zoo.load``.
        to: runtime: ``onnx``, ``openvino``, ``ctranslate2``, ``gguf``, ``static``, or a plugin's.
        onnx: the same as ``to="onnx"``.
        output: directory to write; by default ``NAME-TARGET`` in the working directory.
        head: head to export; by default the checkpoint's.
        dtype: precision of the target, such as ``float32``, ``float16``, ``int8`` or ``q8_0``.
        int8: short for ``dtype="int8"``; of ONNX also ``static``, which scales activations by the
            texts of ``calibration``. ``True`` is ``dynamic``.
        int4: short for ``dtype="int4"``.
        cache: whether an ONNX graph has a key-value cache; by default if the head generates text.
        optimize: fuse layers into operators that only ONNX Runtime has.
        pooled: add a graph with the modules of a sentence encoder.
        dim: number of leading dimensions of the embeddings of ``pooled``, or of principal
            components of ``static``.
        opset: version of ONNX's operators.
        only: write only the graphs in ``int8`` or ``int4``, and none in float32.
        block_size: number of 4-bit weights that share a scale: 32, 64 or 128.
        calibration: file of texts for ``int8="static"``, one a line; the first 256 are read.
        adapter_inputs: keep the tensors of an adapter as inputs of the graph.
        sif_coefficient: weight of rare tokens in static embeddings; 0 for equal weights.
        max_drop: largest loss of a quantized model; by default 0.01, and 0.6 for ``static``.
        adapter: directory of an adapter to apply, or several.
        global_tokens: tokens with global attention in place of the model's, see ``zoo.convert``.
        eval: texts that quantized models are compared on, or a table with labels; by default books
            of the package.
        text: column of the text in a table.
        pair: column of the second text in a table.
        label: column of the label in a table.
        metric: metric of a table, such as ``bleu`` of generated texts; by default the task's.
        unverified: write the model if its runtime is not installed, without a comparison.
        allow_tokenizer_differences: accept that the runtime's own tokenizer cuts some texts
            differently.
        licence: licence in the manifest and the model card; by default the model's.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.
        force: replace the output if zoo wrote it.
        **options: options of a plugin's target.

    Returns:
        ``path``, the directory, and ``report``, with the differences from torch.

    Raises:
        UsageError: an argument does not suit the model or the target, or the output exists.
        VerificationError: the runtime computes something else, or a file is damaged.
        SourceError: the model is not available.

    Example:
        >>> export = zoo.export("all-minilm-l6-v2", int8=True)  # doctest: +SKIP
        >>> export.path, export.report.max_rel  # doctest: +SKIP
        (PosixPath('all-minilm-l6-v2-onnx'), 1.2e-06)
    """
    from zoo.checkpoint import check_tokenizer
    from zoo.conversion.cache import resolve_adapted
    from zoo.hub.reference import resolve
    from zoo.io.output.overwrite import check_target

    if onnx and to != "onnx":
        raise UsageError(f"--onnx and --to {to} are two targets", "give one of them")
    reference = as_reference(ref)
    target_options = {
        "cache": cache,
        "optimize": optimize,
        "pooled": pooled,
        "dim": dim,
        "opset": opset,
        "only": only,
        "block_size": block_size,
        "calibration": as_path(calibration, "file"),
        "adapter_inputs": adapter_inputs,
        "sif_coefficient": sif_coefficient,
        **options,
    }
    scales = "dynamic" if int8 is True else int8 or None
    target, precisions = configure(to, dtype, scales, int4, target_options)
    output_path = as_path(output, "output") or Path(
        f"{resolve(reference).short_name}-{target.name}"
    )
    check_target(output_path, force=force)
    adapters = as_paths(adapter)
    source: dict[str, Any] = {
        "head": head,
        "global_tokens": global_tokens,
        "revision": revision,
        "offline": offline,
        "lock": as_path(lock, "file"),
    }
    keeps_adapters = target.options.keeps_adapters
    applied_adapters = adapters[:1] if keeps_adapters else adapters
    checkpoint = resolve_adapted(reference, applied_adapters, **source)
    adapted_checkpoints = [checkpoint]
    if keeps_adapters:
        for path in adapters[1:]:
            adapted_checkpoints.append(resolve_adapted(reference, [path], **source))
    check_tokenizer(checkpoint)
    if licence is not None:
        checkpoint = checkpoint.with_licence(licence)
    from zoo.exporting.targets.base import ExportSettings, find_comparison_problem

    settings = ExportSettings(
        precision=precisions[0],
        more_precisions=precisions[1:],
        quantization=_quantization_plan(
            checkpoint,
            target,
            precisions,
            max_drop,
            as_path(eval, "file"),
            metric,
            text=text,
            pair=pair,
            label=label,
        ),
        force=force,
        unverified=unverified,
        allow_tokenizer_differences=allow_tokenizer_differences,
        adapters=adapted_checkpoints if keeps_adapters else (),
    )
    # These come before torch is imported.
    target.require_held(checkpoint, settings)
    find_comparison_problem(target, checkpoint, unverified=unverified)
    from zoo.adapters.merge import as_whole_model
    from zoo.exporting.gate import export_model

    if not keeps_adapters:
        checkpoint = as_whole_model(checkpoint)
    report = export_model(target, checkpoint, output_path, settings)
    return Export(output_path, report)


def configure(
    name: str, dtype: str | None, int8: str | None, int4: bool, values: Mapping[str, Any]
) -> "tuple[ExportTarget, tuple[str, ...]]":
    """Return a target with its options, and the precisions to write."""
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
    try:
        target.check_precision(precision)
    except UsageError as error:
        raise UsageError(
            f"--{precision} is not an option of --to {target.name}",
            f"--dtype takes {', '.join(target.precisions)}",
        ) from error


def configured_target(name: str, values: Mapping[str, Any]) -> "ExportTarget":
    """Return a target with the options that were given; the value of the others is ``None``."""
    import msgspec

    from zoo.exporting.targets import target_class

    target = target_class(name)
    names = target.options_type.__struct_fields__
    settings = {option: value for option, value in values.items() if value is not None}
    for option in settings:
        if option not in names:
            raise UsageError(
                f"{_flag(option)} is not an option of --to {name}", _remedy(option, name)
            )
    try:
        # Each value has the type of its field already. Strict, so that a value of another type,
        # such as "null" for a number, is an error and no default.
        options = msgspec.convert(settings, target.options_type)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        subject = f"{_flag(place.removesuffix('`'))}: " if place else f"--to {name}: "
        raise UsageError(f"{subject}{reason}", f"see `zoo export --to {name} --help`") from error
    return target(options)


def _remedy(option: str, name: str) -> str:
    """Return what to do about an option that a target does not have."""
    from zoo.exporting.targets import BUILT_IN, target_class

    owners = []
    for target in BUILT_IN:
        if target != name and option in target_class(target).options_type.__struct_fields__:
            owners.append(f"--to {target}")
    if not owners:
        return "leave it out"
    return f"leave it out; it is an option of {' and '.join(owners)}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _quantization_plan(
    checkpoint: "Checkpoint",
    target: "ExportTarget",
    precisions: Sequence[str],
    max_drop: float | None,
    eval_data: Path | None,
    metric_request: str | None,
    **columns: str | None,
) -> "QuantizationPlan | None":
    """Return how quantized models are compared, or ``None`` for none."""
    from zoo.exporting.quantization.plan import QuantizationPlan
    from zoo.exporting.targets.base import unused_option
    from zoo.tasks.metric import task_metric

    quantized = [name for name in precisions if target.precisions[name].tolerance is None]
    if not quantized:
        quantizing_options = {"max_drop": max_drop, "eval": eval_data, "metric": metric_request}
        for name, value in {**quantizing_options, **columns}.items():
            if value is not None:
                raise unused_option(_flag(name), _quantizing_options(target))
        return None
    column_names = {name: column for name, column in columns.items() if column is not None}
    metric = None
    if eval_data is not None:
        metric = task_metric(checkpoint, eval_data, column_names, metric_request)
    if metric is not None:
        eval_data = None
    elif metric_request is not None:
        raise UsageError("--metric is of a table", "give --eval a file such as dev.tsv")
    elif column_names:
        flag = f"--{next(iter(column_names))}"
        raise UsageError(f"{flag} names a column of a table", "give --eval a file such as dev.tsv")
    if max_drop is None:
        max_drop = target.precisions[quantized[0]].max_drop
    plan = QuantizationPlan(max_drop=max_drop, eval_file=eval_data, metric=metric)
    plan.check_texts(checkpoint)
    return plan


def _quantizing_options(target: "ExportTarget") -> str:
    """Return the options that make a quantized model, as a phrase."""
    names = [name for name, value in target.precisions.items() if value.tolerance is None]
    if target.combines_precisions:
        return " or ".join(f"--{name}" for name in names)
    return f"--dtype {' or '.join(names)}"
