"""Export to ONNX: trace, write, check, compare with torch, publish."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import torch

from zoo.adapters.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import ADAPTER, DATA, MANIFEST, Checkpoint
from zoo.conversion.dtypes import cast, parse_dtype
from zoo.errors import UsageError, VerificationError
from zoo.exporting.adapter_inputs import (
    adapter_arrays,
    adapter_names,
    check_adapters,
    write_adapters,
)
from zoo.exporting.graph.onnx_file import EXTERNAL_OVER, check_graph, check_opset, min_onnxruntime
from zoo.exporting.graph.pooled import pooled_model, pooled_spec, require_modules
from zoo.exporting.graph.write import WrittenGraph, example_shape, write_graphs, write_pooled
from zoo.exporting.layout import unreadable_elsewhere, write_side_files
from zoo.exporting.quantization.variants import (
    QuantizationPlan,
    write_quantized,
    write_quantized_pooled,
)
from zoo.exporting.report import ExportReport, PooledGraph, ShapeCheck
from zoo.exporting.targets import ONNX
from zoo.exporting.targets.onnx import Onnx
from zoo.exporting.validate import compare, compare_with_cache, require_equal, run_reference, worst
from zoo.families.onnx import PAST
from zoo.inference.ort.decoder import OrtDecoder
from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import check_unicode
from zoo.io.progress import progress
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.version import package_version

if TYPE_CHECKING:
    from zoo.families.onnx import OnnxSpec

PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
HALF_PRECISIONS = ("float16", "bfloat16")
STORED = {onnx.TensorProto.FLOAT: "F32", onnx.TensorProto.FLOAT16: "F16"}


def export_onnx(
    checkpoint: Checkpoint,
    target: Path,
    *,
    opset: int | None = None,
    force: bool = False,
    managed: bool = False,  # replace any existing target; see ``zoo.io.output.overwrite``
    dtype: str | None = None,  # ``float32`` (the default) or ``float16``
    cache: bool | None = None,  # key-value cache; by default if the head generates text
    external_over: int = EXTERNAL_OVER,  # bytes of weights that get a file of their own
    optimize: bool = False,  # fuse layers into operators that only ONNX Runtime has
    quantization: QuantizationPlan | None = None,
    only: str | None = None,  # write the quantized graphs of this dtype, and no others
    pooled: bool = False,  # add a graph with the modules of a sentence encoder
    dim: int | None = None,  # of the embeddings of that graph
    # models with one adapter each, whose tensors are inputs; the first is the checkpoint
    adapters: Sequence[Checkpoint] = (),
) -> ExportReport:
    """Export a checkpoint to ONNX, and publish it if its outputs equal torch's."""
    # The reference is torch in float32 for any dtype of the graph
    opset, dtype = check_opset(opset), Onnx().check_precision(dtype)
    check_unicode(target.absolute(), "the directory of the export")
    if quantization is not None:
        quantization.check(checkpoint, dtype, cache)
    if dim is not None and not pooled:
        raise UsageError("--dim cuts the embeddings of a pooled graph", "add --pooled")
    if pooled:
        require_modules(checkpoint, dim)
    inputs = None
    if adapters:
        generates = checkpoint.head.has_cache and cache is not False
        others = {"--pooled": pooled, "quantized copies": quantization}
        inputs = check_adapters(adapters, dtype=dtype, generates=generates, others=others)
    output = atomic_directory(target, force=force, sources=[checkpoint.path], managed=managed)
    with output as staging, progress("exporting"):
        weights = check_weights(checkpoint)
        require_fits(checkpoint, dtype)
        spec = checkpoint.onnx_spec
        graphs = write_graphs(
            checkpoint,
            spec,
            staging,
            opset=opset,
            dtype=dtype,
            cache=cache,
            external_over=external_over,
            optimize=optimize,
            adapter=adapter_arrays(checkpoint) if adapters else None,
        )
        models = [check_graph(staging / graph.file, graph.spec, opset) for graph in graphs]
        report = _gate(checkpoint, spec, staging, models, dtype, graphs, weights)
        if quantization is not None:
            report.quantized |= write_quantized(
                checkpoint, staging, report, quantization, external_over=external_over
            )
        if pooled:
            report.pooled = _pooled(
                checkpoint,
                staging,
                dim=dim,
                opset=opset,
                dtype=dtype,
                external_over=external_over,
                optimize=optimize,
            )
            if quantization is not None:
                report.pooled.quantized |= write_quantized_pooled(
                    checkpoint,
                    staging,
                    pooled_spec(checkpoint, dim),
                    report,
                    quantization,
                    external_over=external_over,
                )
        if inputs is not None:
            report.adapter_inputs, report.adapters = inputs, adapter_names(adapters)
            for adapted in adapters[1:]:
                report.checks.extend(_compare_adapter(adapted, spec, staging, graphs))
            write_adapters(adapters, staging)
        if only is not None:
            _remove_graphs(staging, report)
        write_side_files(checkpoint, staging, report)
    return report


def _compare_adapter(
    checkpoint: Checkpoint, spec: "OnnxSpec", staging: Path, graphs: list[WrittenGraph]
) -> list[ShapeCheck]:
    """Compare the graph with torch for another adapter."""
    from zoo.inference.load_model import load_model

    model = load_model(checkpoint, torch.float32)
    references = run_reference(model, spec, checkpoint.config, example_shape(spec))
    arrays = adapter_arrays(checkpoint)
    checks = compare(references, staging / graphs[0].file, spec, adapter=arrays)
    require_equal(checks, spec.tolerance["float32"], f"the graph with {checkpoint.name}")
    return checks


def _pooled(
    checkpoint: Checkpoint, staging: Path, *, dim: int | None, dtype: str, **settings: Any
) -> PooledGraph:
    """Write the graph with the modules of a sentence encoder, and compare it with torch."""
    spec = pooled_spec(checkpoint, dim)
    graph = write_pooled(checkpoint, spec, staging, dim=dim, dtype=dtype, **settings)
    check_graph(staging / graph.file, graph.spec, settings["opset"])
    model = pooled_model(checkpoint, spec, dim, torch.float32)
    references = run_reference(model, spec, checkpoint.config, example_shape(spec))
    del model
    checks = compare(references, staging / graph.file, spec)
    require_equal(checks, spec.tolerance[dtype], "the pooled graph")
    return PooledGraph(
        file=graph.file,
        dim=dim,
        graph=graph.described(),
        max_rel=worst(checks)["max_rel"],
        checks=checks,
    )


def _remove_graphs(staging: Path, report: ExportReport) -> None:
    """Remove the graphs that the quantized ones were made of and compared with."""
    for file in report.graphs:
        (staging / file).unlink()
        (staging / file).with_suffix(DATA).unlink(missing_ok=True)
    if report.pooled is not None:
        (staging / report.pooled.file).unlink()
        (staging / report.pooled.file).with_suffix(DATA).unlink(missing_ok=True)
        report.pooled.kept = False
    report.graphs.clear()
    report.tensors.clear()


def check_weights(checkpoint: Checkpoint) -> dict[str, FileDigest]:
    """Compare the weights with the digests of the manifest."""
    if isinstance(checkpoint, AdaptedCheckpoint):
        checkpoint.require_unchanged()
        return {**check_weights(checkpoint.base), ADAPTER: hash_file(checkpoint.path / ADAPTER)}
    digests = {}
    for path in checkpoint.weight_files():
        if checkpoint.is_export and not path.is_file():
            raise UsageError(
                f"{checkpoint.name} holds a model for {checkpoint.export_target} and no weights"
                if checkpoint.export_target != ONNX
                else f"{checkpoint.name} holds an ONNX graph and no weights",
                "export the checkpoint that it was made from",
            )
        with checkpoint.open_weights():  # raises a specific error for a damaged file
            digests[path.name] = hash_file(path)
        known = checkpoint.manifest.files.get(path.name)
        if digests[path.name].blake3 != (known.blake3 if known else None):
            raise VerificationError(
                f"{path} is not the file that {checkpoint.path / MANIFEST} describes",
                "convert it again",
            )
    return digests


def require_fits(checkpoint: Checkpoint, precision: str) -> None:
    """Check that a precision with fewer exponents or digits holds all weights as finite numbers."""
    # Outputs are only compared for some tokens, which need not read a row that overflows.
    if precision not in HALF_PRECISIONS:
        return
    parts: tuple[Checkpoint, ...] = (checkpoint,)
    if isinstance(checkpoint, AdaptedCheckpoint):
        parts = (checkpoint.base, *checkpoint.adapters)
    for part in parts:
        files = [part.path / ADAPTER] if part.is_adapter else part.weight_files()
        with SafetensorsReader(files) as reader:
            for name, info in reader.tensors.items():
                cast(reader.read(name), info.dtype, parse_dtype(precision), name)


def _gate(
    checkpoint: Checkpoint,
    spec: "OnnxSpec",
    folder: Path,
    models: list[onnx.ModelProto],
    dtype: str,
    graphs: list[WrittenGraph],
    weights: dict[str, FileDigest],
) -> ExportReport:
    from zoo.inference.load_model import load_model

    traced, tolerance = example_shape(spec), spec.tolerance[dtype]
    cache = any(name.startswith(f"{PAST}.") for name in graphs[-1].spec.inputs)
    files = [folder / graph.file for graph in graphs]
    # the model is freed before ONNX Runtime loads the same weights
    references = run_reference(
        load_model(checkpoint, torch.float32), spec, checkpoint.config, traced
    )
    checks = (
        compare_with_cache(references, OrtDecoder(files), spec)
        if cache
        else compare(references, files[0], spec)
    )
    require_equal(checks, tolerance)
    codes = [STORED.get(t.data_type, "") for m in models for t in m.graph.initializer]
    model = models[0]
    opset = model.opset_import[0].version
    return ExportReport(
        validated=True,
        opset=opset,
        ir=model.ir_version,
        min_onnxruntime=min_onnxruntime(opset, dtype, fused=any(g.fused for g in graphs)),
        producer=f"{model.producer_name} {model.producer_version}",
        versions={name: package_version(name) or "unknown" for name in PACKAGES},
        dtype=dtype,
        cache=cache,
        graphs={graph.file: graph.described() for graph in graphs},
        weights=weights,
        tensors={code: codes.count(code) for code in STORED.values() if code in codes},
        unreadable_elsewhere=unreadable_elsewhere(checkpoint),
        traced=list(traced),
        tolerance=tolerance,
        checks=checks,
        **worst(checks),
    )
