"""What the model card of an ONNX export says of its graphs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.exporting.card import CardFacts, text_splitter
from zoo.exporting.targets.onnx.snippets import (
    ShownGraph,
    cutting_note,
    onnx_snippets,
    other_precisions,
    run_options,
)
from zoo.io.numbers import format_bytes

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.graph.report import OnnxReport


def onnx_facts(checkpoint: "Checkpoint", report: "OnnxReport") -> CardFacts:
    """Return what the card says of the graphs."""
    graph = ShownGraph.from_report(checkpoint, report)
    needs_library = text_splitter(checkpoint) is not None
    notes = []
    for note in (other_precisions(report), cutting_note(graph)):
        if note is not None:
            notes.append(note)
    return CardFacts(
        title="ONNX",
        contents="ONNX graphs",
        library="onnx" if report.unreadable_elsewhere or needs_library else "transformers.js",
        quantized=not report.graphs,
        heading="Graphs",
        rows=list(graph_rows(report)),
        snippets=list(onnx_snippets(graph)),
        notes=tuple(notes),
        options=run_options(report),
    )


def graph_rows(report: "OnnxReport") -> Iterator[tuple[str, str]]:
    """Yield each dtype with its files and how they compare."""
    if report.graphs:
        argmax = report.argmax_agreement
        agreement = "" if argmax is None else f", argmax agrees in {argmax:.2%}"
        yield (
            report.dtype,
            f"{', '.join(report.graphs)}: differs from PyTorch by at most {report.max_rel:.1e} of "
            f"the largest magnitude{agreement}",
        )
    for dtype, copies in report.quantized.items():
        size = f"{format_bytes(copies.bytes)} of {format_bytes(copies.bytes_before)} in float32"
        yield dtype, f"{', '.join(copies.graphs)}: {size}; {copies.agreement.line()}"
    if report.pooled is not None:
        if report.pooled.kept:
            outputs = " and ".join(report.pooled.graph.outputs)
            yield "pooled", f"{report.pooled.file}: {outputs}"
        for dtype, copies in report.pooled.quantized.items():
            yield f"pooled, {dtype}", f"{', '.join(copies.graphs)}: {copies.agreement.line()}"
    yield "opset", str(report.opset)
    yield "onnxruntime", f"{report.min_onnxruntime} or newer"
