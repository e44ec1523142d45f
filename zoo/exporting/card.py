"""Model card of an export: what it holds, how it was compared, and how to run it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.conversion.model_card import card_name, pipeline_tag, table_lines, task_of_head
from zoo.conversion.usage import UsedModel, zoo_snippet
from zoo.hub.upload.plan import LICENCE_ID, PLACEHOLDER
from zoo.io.numbers import format_bytes
from zoo.io.page_text import (
    hub_link,
    is_hub_repo,
    markdown_block,
    markdown_front,
    markdown_text,
)
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.report import ExportReport
    from zoo.families.tasks import TaskSpec

# dtype of a graph -> its name in Transformers.js
TRANSFORMERS_JS = {"float32": "fp32", "float16": "fp16", "int8": "q8", "int4": "q4"}
# pipelines of Transformers.js that are called otherwise than the tag of the model
PIPELINES = {"sentence-similarity": "feature-extraction"}
# pipelines that take a text
ONE_TEXT = ("text-classification", "token-classification", "feature-extraction", "text-generation")


def export_card(checkpoint: "Checkpoint", report: "ExportReport") -> bytes:
    """Return the ``README.md`` of an ONNX export."""
    library = "onnx" if report.unreadable_elsewhere else "transformers.js"
    of = source_link(checkpoint)
    lines = [
        *card_head(checkpoint, library, "ONNX", quantized=not report.graphs),
        f"ONNX graphs{of}: family {checkpoint.family.name}, head {checkpoint.head_name}. "
        f"plm-zoo {__version__} exported them, and compared their outputs with PyTorch before it "
        "wrote them.",
        *table_lines("## Graphs", list(_graphs(report))),
        *_usage(checkpoint, report),
    ]
    return ("\n".join(lines) + "\n").encode()


def card_head(checkpoint: "Checkpoint", library: str, title: str, *, quantized: bool) -> list[str]:
    """Return the metadata, the title and the task of the card of an export."""
    metadata: dict[str, Any] = {}
    if (licence := checkpoint.manifest.licence) and LICENCE_ID.fullmatch(licence):
        metadata["license"] = licence
    repo = _repo(checkpoint)
    if repo and is_hub_repo(repo):
        metadata["base_model"] = repo
        if quantized:
            metadata["base_model_relation"] = "quantized"
    metadata["library_name"] = library
    if tag := _tag(checkpoint):
        metadata["pipeline_tag"] = tag
    task = _task(checkpoint)
    return [
        *markdown_front(metadata),
        "",
        f"# {markdown_text(card_name(checkpoint.family.name, task, repo))}, {title}",
        "",
        *([f"Task: {task.name}. {task.summary}"] if task else []),
    ]


def zoo_usage(checkpoint: "Checkpoint") -> list[str]:
    """Return the section of a card on running an export with zoo."""
    info = checkpoint.model.tokenizer
    model = UsedModel(
        checkpoint.family,
        checkpoint.config,
        checkpoint.head_name,
        _task(checkpoint),
        checkpoint.model.pooling is not None,
        info.special.get("mask") if info else None,
    )
    lines = zoo_snippet(model) or [f"$ zoo info {PLACEHOLDER}"]
    return ["", "## Usage", "", "With zoo:", "", *markdown_block("console", lines)]


def source_link(checkpoint: "Checkpoint") -> str:
    """Return the phrase that links to the repository of the weights; empty without one."""
    repo = _repo(checkpoint)
    return f" of {hub_link(repo)}" if repo else ""


def _repo(checkpoint: "Checkpoint") -> str | None:
    source = checkpoint.manifest.source
    return source.repo if source else None


def _tag(checkpoint: "Checkpoint") -> str | None:
    pooled = checkpoint.model.pooling is not None
    return pipeline_tag(checkpoint.family, checkpoint.head_name, pooled=pooled)


def _task(checkpoint: "Checkpoint") -> "TaskSpec | None":
    training = checkpoint.manifest.training or {}
    return task_of_head(checkpoint.family, checkpoint.head_name, training.get("task"))


def _graphs(report: "ExportReport") -> Iterator[tuple[str, str]]:
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


def _usage(checkpoint: "Checkpoint", report: "ExportReport") -> Iterator[str]:
    dtypes = [*([report.dtype] if report.graphs else []), *report.quantized]
    yield from zoo_usage(checkpoint)
    tag = _tag(checkpoint)
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
