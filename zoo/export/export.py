"""``zoo export``: trace, write, check, compare, and only then publish."""

import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import torch

from zoo.checkpoint import (
    CONFIG,
    FORMAT_VERSION,
    GRAPH,
    MANIFEST,
    TOKENIZER,
    Checkpoint,
    Manifest,
    encode_manifest,
)
from zoo.convert.dtypes import LONG, parse_dtype
from zoo.errors import UsageError, VerificationError
from zoo.export.graph import (
    EXTERNAL_OVER,
    check_graph,
    check_opset,
    min_onnxruntime,
)
from zoo.export.report import ExportReport
from zoo.export.validate import compare, compare_with_cache, require_equal, worst
from zoo.export.write import WrittenGraph, example_shape, write_graphs
from zoo.families.onnx import PAST
from zoo.inference.ort_decoder import OrtDecoder
from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.output.atomic import atomic_directory
from zoo.io.progress import progress
from zoo.plugins import installed
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.families.onnx import OnnxSpec

DTYPES = ("float32", "float16")
PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
STORED = {onnx.TensorProto.FLOAT: "F32", onnx.TensorProto.FLOAT16: "F16"}


def export_onnx(
    checkpoint: Checkpoint,
    target: Path,
    *,
    opset: int | None = None,
    force: bool = False,
    managed: bool = False,
    dtype: str | None = None,
    cache: bool | None = None,
    external_over: int = EXTERNAL_OVER,
) -> ExportReport:
    """Export a checkpoint to ONNX, and publish it if it computes what torch computes.

    The reference is torch in float32, whatever the graph computes in.

    Args:
        checkpoint: a directory with weights.
        target: the directory to make: ``model.onnx``, or the encoder's graph and the decoder's,
            ``config.json``, ``tokenizer.json`` and a manifest with the results.
        opset: the ONNX operator set, by default one that old runtimes know and new ones run
            fastest.
        force: replace the target if it exists and `zoo` wrote it.
        managed: replace whatever is there; see ``zoo.io.output.overwrite``.
        dtype: what the graph computes in, ``float32`` (the default) or ``float16``.
        cache: whether the graphs take keys and values, and return them; by default where the
            model writes with them. They compute what those without compute, for every token, and
            generate at one token a step.
        external_over: from this many bytes of weights on, they are written to a file next to the
            graph, such as ``model.onnx.data``.

    Raises:
        UsageError: an argument is out of range, or the target cannot be written.
        VerificationError: the weights are not those of the manifest, the exporter fails, or the
            graph does not compute the same. Nothing is left behind.
    """
    opset, dtype = check_opset(opset), _check_dtype(dtype)
    output = atomic_directory(target, force=force, sources=[checkpoint.path], managed=managed)
    with output as staging, progress("exporting", 3) as advance:
        weights = _check_weights(checkpoint)
        spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
        graphs = write_graphs(
            checkpoint,
            spec,
            staging,
            opset=opset,
            dtype=dtype,
            cache=cache,
            external_over=external_over,
        )
        advance(1)
        models = [check_graph(staging / graph.file, graph.spec, opset) for graph in graphs]
        advance(1)
        report = _gate(checkpoint, spec, staging, models[0], dtype, graphs, weights)
        _write_side_files(checkpoint, staging, report, models)
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
            found[path.name] = hash_file(path)
        if found[path.name].blake3 != _digest_of(checkpoint, path.name):
            raise VerificationError(
                f"{path} is not the file that {checkpoint.path / MANIFEST} describes",
                "convert it again",
            )
    return found


def _digest_of(checkpoint: Checkpoint, name: str) -> str | None:
    known = checkpoint.manifest.files.get(name)
    return known.blake3 if known else None


def _gate(
    checkpoint: Checkpoint,
    spec: "OnnxSpec",
    folder: Path,
    model: onnx.ModelProto,
    dtype: str,
    graphs: list[WrittenGraph],
    weights: dict[str, FileDigest],
) -> ExportReport:
    from zoo.inference.load_model import load_model

    traced, tolerance = example_shape(spec), spec.tolerance[dtype]
    reference = load_model(checkpoint, torch.float32)
    cache = any(name.startswith(f"{PAST}.") for name in graphs[-1].spec.inputs)
    if cache:
        session = OrtDecoder([folder / graph.file for graph in graphs])
        checks = compare_with_cache(reference, session, spec, checkpoint.config, traced)
    else:
        checks = compare(reference, folder / GRAPH, spec, checkpoint.config, traced)
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
        cache=cache,
        graphs={graph.file: graph.described() for graph in graphs},
        weights=weights,
        traced=list(traced),
        tolerance=tolerance,
        checks=checks,
        **worst(checks),
    )


def _write_side_files(
    checkpoint: Checkpoint, staging: Path, report: ExportReport, models: list[onnx.ModelProto]
) -> None:
    for name in (CONFIG, TOKENIZER):
        if (checkpoint.path / name).is_file():
            shutil.copyfile(checkpoint.path / name, staging / name)
    codes = [STORED.get(t.data_type, "") for model in models for t in model.graph.initializer]
    before, plugin = checkpoint.manifest, installed().get(checkpoint.family.name)
    manifest = Manifest(
        zoo=FORMAT_VERSION,
        created_by={
            "plm-zoo": __version__,
            **({plugin.distribution: plugin.version} if plugin else {}),
        },
        files={path.name: hash_file(path) for path in sorted(staging.iterdir())},
        source=before.source,
        licence=before.licence,
        training=before.training,
        dtypes={code: codes.count(code) for code in STORED.values() if code in codes},
        export=report.to_dict(),
    )
    (staging / MANIFEST).write_bytes(encode_manifest(manifest))
