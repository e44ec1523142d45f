"""``zoo export``: trace, write, check, compare, and only then publish."""

import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import torch

import zoo
from zoo.checkpoint import (
    CONFIG,
    GRAPH,
    LAYOUT,
    MANIFEST,
    TOKENIZER,
    Checkpoint,
    FileDigest,
    Manifest,
    encode,
)
from zoo.convert.dtypes import LONG, parse_dtype
from zoo.convert.write import digest
from zoo.errors import UsageError, VerificationError
from zoo.export.graph import (
    EXTERNAL_OVER,
    check_graph,
    check_opset,
    min_onnxruntime,
    write_graph,
)
from zoo.export.report import ExportReport
from zoo.export.trace import trace
from zoo.export.validate import compare, require_equal, worst
from zoo.plugins import installed
from zoo.progress import progress
from zoo.publish import publishing
from zoo.testing.draws import draw_inputs

if TYPE_CHECKING:
    from zoo.export.spec import OnnxSpec

DTYPES = ("float32", "float16")
EXAMPLE = (8, 5)  # real tokens of each row of the traced batch
PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
STORED = {onnx.TensorProto.FLOAT: "F32", onnx.TensorProto.FLOAT16: "F16"}


def export_onnx(
    checkpoint: Checkpoint,
    target: Path,
    *,
    opset: int | None = None,
    force: bool = False,
    dtype: str | None = None,
    external_over: int = EXTERNAL_OVER,
) -> ExportReport:
    """Export a checkpoint to ONNX, and publish it if it computes what torch computes.

    The reference is torch in float32, whatever the graph computes in.

    Args:
        checkpoint: a directory with weights.
        target: the directory to make: ``model.onnx``, ``config.json``, ``tokenizer.json`` and a
            manifest with the results.
        opset: the ONNX operator set, by default one that old runtimes know and new ones run
            fastest.
        force: replace the target if it exists.
        dtype: what the graph computes in, ``float32`` (the default) or ``float16``.
        external_over: from this many bytes of weights on, they are written to
            ``model.onnx.data``.

    Raises:
        UsageError: an argument is out of range, or the target cannot be written.
        VerificationError: the weights are not those of the manifest, the exporter fails, or the
            graph does not compute the same. Nothing is left behind.
    """
    opset, dtype = check_opset(opset), _check_dtype(dtype)
    with publishing(target, force=force) as staging, progress("exporting", 3) as advance:
        weights = _check_weights(checkpoint)
        spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
        external = _write(checkpoint, spec, staging / GRAPH, opset, dtype, external_over)
        advance(1)
        model = check_graph(staging / GRAPH, spec, opset)
        advance(1)
        report = _gate(checkpoint, spec, staging / GRAPH, model, dtype, external, weights)
        _write_side_files(checkpoint, staging, report, model)
        advance(1)
    return report


def _check_dtype(dtype: str | None) -> str:
    code = parse_dtype(dtype)
    name = LONG[code] if code else DTYPES[0]
    if name not in DTYPES:
        raise UsageError(f"no graph is exported in {name}", f"give {' or '.join(DTYPES)}")
    return name


def _check_weights(checkpoint: Checkpoint) -> dict[str, FileDigest]:
    """Compare the weights with the manifest, whose statements the export will repeat.

    Raises:
        UsageError: there are none.
        VerificationError: a file is not what the manifest says.
    """
    found = {}
    for path in checkpoint.weight_files():
        if checkpoint.graph and not path.is_file():
            raise UsageError(
                f"{checkpoint.path} holds an ONNX graph and no weights",
                "export the checkpoint that it was made of",
            )
        with checkpoint.open_weights():  # says what is wrong with a file, where something is
            found[path.name] = digest(path)
        if found[path.name].blake3 != _digest_of(checkpoint, path.name):
            raise VerificationError(
                f"{path} is not the file that {checkpoint.path / MANIFEST} describes",
                "convert it again",
            )
    return found


def _digest_of(checkpoint: Checkpoint, name: str) -> str | None:
    known = checkpoint.manifest.files.get(name)
    return known.blake3 if known else None


def _write(
    checkpoint: Checkpoint,
    spec: "OnnxSpec",
    path: Path,
    opset: int,
    dtype: str,
    external_over: int,
) -> str | None:
    """Trace and write; what the exporter holds in memory is gone before the gate begins."""
    from zoo.backends.loading import load_model

    model = load_model(checkpoint, getattr(torch, dtype))
    example = draw_inputs(spec, checkpoint.config, _example(spec))
    return write_graph(trace(model, example, spec, opset), path, opset, external_over)


def _example(spec: "OnnxSpec") -> list[int]:
    longest = spec.limits.get("tokens", max(EXAMPLE))
    return [min(length, longest) for length in EXAMPLE]


def _gate(
    checkpoint: Checkpoint,
    spec: "OnnxSpec",
    path: Path,
    model: onnx.ModelProto,
    dtype: str,
    external: str | None,
    weights: dict[str, FileDigest],
) -> ExportReport:
    from zoo.backends.loading import load_model

    example = _example(spec)
    traced, tolerance = (len(example), max(example)), spec.tolerance[dtype]
    reference = load_model(checkpoint, torch.float32)
    checks = compare(reference, path, spec, checkpoint.config, traced)
    require_equal(checks, tolerance)
    opset = model.opset_import[0].version
    return ExportReport(
        validated=True,
        opset=opset,
        ir=model.ir_version,
        min_onnxruntime=min_onnxruntime(opset, dtype),
        producer=f"{model.producer_name} {model.producer_version}",
        versions={name: metadata.version(name) for name in PACKAGES},
        dtype=dtype,
        inputs={name: list(axes) for name, axes in spec.inputs.items()},
        outputs={name: list(axes) for name, axes in spec.outputs.items()},
        external_data=external,
        weights=weights,
        traced=list(traced),
        tolerance=tolerance,
        checks=checks,
        **worst(checks),
    )


def _write_side_files(
    checkpoint: Checkpoint, staging: Path, report: ExportReport, model: onnx.ModelProto
) -> None:
    for name in (CONFIG, TOKENIZER):
        if (checkpoint.path / name).is_file():
            shutil.copyfile(checkpoint.path / name, staging / name)
    codes = [STORED.get(t.data_type, "") for t in model.graph.initializer]
    before, plugin = checkpoint.manifest, installed().get(checkpoint.family.name)
    manifest = Manifest(
        zoo=LAYOUT,
        created_by={
            "plm-zoo": zoo.__version__,
            **({plugin.distribution: plugin.version} if plugin else {}),
        },
        files={path.name: digest(path) for path in sorted(staging.iterdir())},
        source=before.source,
        licence=before.licence,
        training=before.training,
        dtypes={code: codes.count(code) for code in STORED.values() if code in codes},
        export=report.to_dict(),
    )
    (staging / MANIFEST).write_bytes(encode(manifest))
