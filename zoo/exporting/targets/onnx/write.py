"""Writing of ONNX graphs: those that the gate compares, and their copies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from zoo.adapters.graph_inputs import adapter_arrays
from zoo.checkpoint import Checkpoint, variant_file
from zoo.exporting.graph.onnx_file import check_graph, min_onnxruntime
from zoo.exporting.graph.opsets import check_opset
from zoo.exporting.graph.write import example_shape, write_graphs
from zoo.exporting.quantization.agreement import make_samples
from zoo.exporting.quantization.plan import Quantization
from zoo.exporting.quantization.quantize import quantizable, quantize
from zoo.exporting.quantization.texts import read_texts
from zoo.exporting.quantization.variants import size_of
from zoo.exporting.targets.onnx.session import graph_files
from zoo.families.onnx import PAST
from zoo.io.scratch import scratch_directory

if TYPE_CHECKING:
    from zoo.exporting.targets.onnx.options import OnnxOptions

STORED = {onnx.TensorProto.FLOAT: "F32", onnx.TensorProto.FLOAT16: "F16"}


def write_onnx(
    checkpoint: Checkpoint,
    directory: Path,
    options: "OnnxOptions",
    dtype: str,
    *,
    external_over: int,
) -> dict[str, Any]:
    """Trace and write the graphs of a model, and return the fields of their report."""
    spec = checkpoint.onnx_spec
    opset = check_opset(options.opset)
    graphs = write_graphs(
        checkpoint,
        spec,
        directory,
        opset=opset,
        dtype=dtype,
        cache=options.cache,
        external_over=external_over,
        optimize=options.optimize,
        adapter=adapter_arrays(checkpoint) if options.adapter_inputs else None,
    )
    models = [check_graph(directory / graph.file, graph.spec, opset) for graph in graphs]
    codes = []
    for model in models:
        codes += [STORED.get(tensor.data_type, "") for tensor in model.graph.initializer]
    fused = any(graph.fused for graph in graphs)
    return {
        "opset": opset,
        "ir": models[0].ir_version,
        "min_onnxruntime": min_onnxruntime(opset, dtype, fused=fused),
        "producer": f"{models[0].producer_name} {models[0].producer_version}",
        "cache": any(name.startswith(f"{PAST}.") for name in graphs[-1].spec.inputs),
        "graphs": {graph.file: graph.described() for graph in graphs},
        "tensors": {code: codes.count(code) for code in STORED.values() if code in codes},
        "traced": list(example_shape(spec)),
        "tolerance": spec.tolerance[dtype],
        # The comparison replaces these.
        "max_rel": 0.0,
        "argmax_agreement": None,
        "checks": [],
    }


def write_quantized_graphs(
    checkpoint: Checkpoint,
    directory: Path,
    options: "OnnxOptions",
    method: Quantization,
    *,
    external_over: int,
) -> None:
    """Write graphs in which all layers are quantized."""
    texts = read_texts(options.calibration) if method.static else []
    samples = make_samples(checkpoint, texts) if method.static else []
    with scratch_directory(directory) as scratch:
        write_onnx(checkpoint, scratch, options, "float32", external_over=external_over)
        for source in graph_files(scratch, "float32"):
            name = variant_file(source.relative_to(scratch).as_posix(), method.dtype)
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            quantize(
                source,
                directory / name,
                method,
                quantizable(source),
                calibration=[sample.inputs for sample in samples],
                external=size_of(source) > external_over,
            )
