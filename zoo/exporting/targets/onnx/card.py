"""What the model card of an ONNX export says of its graphs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.exporting.card import CardFacts, model_tag
from zoo.hub.upload.plan import PLACEHOLDER
from zoo.io.numbers import format_bytes

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.graph.report import OnnxReport

# dtype of a graph -> its name in Transformers.js
TRANSFORMERS_JS = {"float32": "fp32", "float16": "fp16", "int8": "q8", "int4": "q4"}
# pipelines of Transformers.js that are called otherwise than the tag of the model
PIPELINES = {"sentence-similarity": "feature-extraction"}
# pipelines that take a text
ONE_TEXT = ("text-classification", "token-classification", "feature-extraction", "text-generation")


def onnx_facts(checkpoint: "Checkpoint", report: "OnnxReport") -> CardFacts:
    """Return what the card says of the graphs."""
    return CardFacts(
        title="ONNX",
        contents="ONNX graphs",
        library="onnx" if report.unreadable_elsewhere else "transformers.js",
        quantized=not report.graphs,
        heading="Graphs",
        rows=list(graph_rows(report)),
        usage=list(usage_lines(checkpoint, report)),
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


def usage_lines(checkpoint: "Checkpoint", report: "OnnxReport") -> Iterator[str]:
    """Yield the lines on Transformers.js."""
    dtypes = [*([report.dtype] if report.graphs else []), *report.quantized]
    tag = model_tag(checkpoint)
    if tag is not None and report.unreadable_elsewhere is None:
        pipeline = PIPELINES.get(tag, tag)
        dtype = TRANSFORMERS_JS[dtypes[0]]
        yield from ("", "With Transformers.js:", "", "```js")
        yield 'import { pipeline } from "@huggingface/transformers";'
        yield ""
        options = f'{{ dtype: "{dtype}" }}'
        yield f'const model = await pipeline("{pipeline}", "{PLACEHOLDER}", {options});'
        if pipeline in ONE_TEXT:
            yield 'console.log(await model("A text."));'
        yield "```"
    if report.unreadable_elsewhere is not None:
        yield from ("", f"For zoo and ONNX Runtime only: {report.unreadable_elsewhere}.")
