"""Model card of an export: what it holds, how it was compared, and how to run it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import yaml

from zoo.convert.model_card import LICENCE_ID, pipeline_tag, table_lines, task_of_head
from zoo.convert.usage import UsedModel, zoo_snippet
from zoo.hub.upload.plan import PLACEHOLDER
from zoo.io.numbers import format_bytes
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.export.report import ExportReport

# dtype of a graph -> its name in Transformers.js
TRANSFORMERS_JS = {"float32": "fp32", "float16": "fp16", "int8": "q8", "int4": "q4"}
# pipelines of Transformers.js that are called otherwise than the tag of the model
PIPELINES = {"sentence-similarity": "feature-extraction"}
# pipelines that take a text
ONE_TEXT = ("text-classification", "token-classification", "feature-extraction", "text-generation")


def export_card(checkpoint: "Checkpoint", report: "ExportReport") -> bytes:
    """Return the ``README.md`` of an export."""
    tag = pipeline_tag(
        checkpoint.family, checkpoint.head_name, pooled=checkpoint.model.pooling is not None
    )
    source = checkpoint.manifest.source
    repo = source.repo if source else None
    metadata: dict[str, Any] = {}
    if (licence := checkpoint.manifest.licence) and LICENCE_ID.fullmatch(licence):
        metadata["license"] = licence
    if repo:
        metadata |= {"base_model": repo, "base_model_relation": "quantized"}
        if report.graphs:  # in full precision
            del metadata["base_model_relation"]
    metadata["library_name"] = "onnx" if report.unreadable_elsewhere else "transformers.js"
    if tag:
        metadata["pipeline_tag"] = tag
    training = checkpoint.manifest.training or {}
    task = task_of_head(checkpoint.family, checkpoint.head_name, training.get("task"))
    name = checkpoint.family.name + (f" for {task.name.replace('-', ' ')}" if task else "")
    name = repo.rpartition("/")[2] if repo else name
    of = f" of [{repo}](https://huggingface.co/{repo})" if repo else ""
    lines = [
        "---",
        f"{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---",
        "",
        f"# {name}, ONNX",
        "",
        *([f"Task: {task.name}. {task.summary}"] if task else []),
        f"ONNX graphs{of}: family {checkpoint.family.name}, head {checkpoint.head_name}. "
        f"plm-zoo {__version__} exported them, and compared their outputs with PyTorch before it "
        "wrote them.",
        *table_lines("## Graphs", list(_graphs(report))),
        *_usage(checkpoint, report, tag),
    ]
    return ("\n".join(lines) + "\n").encode()


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
    yield "opset", str(report.opset)
    yield "onnxruntime", f"{report.min_onnxruntime} or newer"


def _usage(checkpoint: "Checkpoint", report: "ExportReport", tag: str | None) -> Iterator[str]:
    dtypes = [*([report.dtype] if report.graphs else []), *report.quantized]
    info, training = checkpoint.model.tokenizer, checkpoint.manifest.training or {}
    model = UsedModel(
        checkpoint.family,
        checkpoint.config,
        checkpoint.head_name,
        task_of_head(checkpoint.family, checkpoint.head_name, training.get("task")),
        checkpoint.model.pooling is not None,
        info.special.get("mask") if info else None,
    )
    yield from ("", "## Usage", "", "With zoo:", "", "```console")
    yield f"$ hf download {PLACEHOLDER} --local-dir DIR"
    yield from (*zoo_snippet(model, "DIR"), "```")
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
