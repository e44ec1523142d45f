"""Model card of an export: what it holds, how it was compared, and how to run it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.checkpoint.records import EvaluationRecord
from zoo.conversion.model_card import (
    card_name,
    evaluation_lines,
    evaluation_metadata,
    evaluation_records,
    table_lines,
    task_of_head,
    trained_from,
)
from zoo.conversion.usage import (
    Snippet,
    UsedModel,
    embedding_sizes,
    scores_pairs,
    snippet_lines,
    zoo_snippet,
)
from zoo.hub.upload.plan import LICENCE_ID, PLACEHOLDER
from zoo.io.numbers import format_bytes
from zoo.io.page_text import (
    hub_link,
    is_hub_repo,
    markdown_front,
    markdown_text,
)
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.report import ExportReport
    from zoo.families.tasks import TaskSpec
    from zoo.tokenizers.words import Splitter


@dataclass(frozen=True)
class CardFacts:
    """What a model card says of the files of an export."""

    title: str  # the runtime or the format, in the title of the card
    contents: str  # what the files are, such as ``ONNX graphs``
    library: str  # library of the models on the Hub
    quantized: bool  # whether all files are quantized
    heading: str  # heading of the table
    rows: list[tuple[str, str]]  # rows of the table
    snippets: list[Snippet]  # how other programs run the model
    notes: tuple[str, ...] = ()  # sentences below the snippets
    options: str = ""  # options of ``zoo run``, such as ``--dtype int8``


def export_card(checkpoint: "Checkpoint", report: "ExportReport", facts: CardFacts) -> bytes:
    """Return the ``README.md`` of an export."""
    compared = (
        "and compared its outputs with PyTorch before it wrote it"
        if report.validated
        else "and did not compare its outputs with PyTorch"
    )
    results = exported_results(checkpoint, report, quantized=facts.quantized)
    lines = [
        *card_head(checkpoint, facts, report.target, results),
        f"{facts.contents}{source_link(checkpoint)}: family {checkpoint.family.name}, head "
        f"{checkpoint.head_name}. plm-zoo {__version__} exported it, {compared}.",
        *table_lines(f"## {facts.heading}", facts.rows),
        *zoo_usage(checkpoint, facts.options),
        *program_lines(report, facts),
        *splitter_lines(checkpoint),
        *evaluation_lines(results),
    ]
    return ("\n".join(lines) + "\n").encode()


def runtime_facts(
    report: "ExportReport",
    library: str,
    snippets: Iterable[Snippet],
    *,
    quantized: bool,
) -> CardFacts:
    """Return what the card says of a model for a runtime."""
    rows = [("files", ", ".join(report.files)), ("size", format_bytes(report.bytes))]
    rows.append(("precision", report.dtype))
    if report.unverified is not None:
        rows.append(("compared", f"no: {report.unverified}"))
    if report.max_rel is not None:
        difference = f"{report.max_rel:.1e} of the largest magnitude"
        rows.append(("compared", f"differs from PyTorch by at most {difference}"))
    if report.reason and not report.checks and report.agreement is not None:
        rows.append(("kind", report.reason))
    if report.agreement is not None:
        rows.append(("on text", report.agreement.line()))
    if report.generation is not None:
        rows.append(("generation", report.generation.line()))
    if report.tokenizer is not None:
        rows.append(("tokenizer", report.tokenizer.line()))
    return CardFacts(
        title=report.title,
        contents=report.title,
        library=library,
        quantized=quantized,
        heading="Model",
        rows=rows,
        snippets=list(snippets),
    )


def exported_results(
    checkpoint: "Checkpoint", report: "ExportReport", *, quantized: bool
) -> "list[EvaluationRecord]":
    """Return the evaluations of what an export holds.

    Those of the exported model are also those of its files, unless they are quantized. Metrics of
    quantized files are those that the gate measured.
    """
    results = [] if quantized else list(evaluation_records(checkpoint.manifest))
    task = _task(checkpoint)
    for precision, agreement in report.measured_precisions():
        if agreement.metric is not None:
            record = EvaluationRecord(
                task=task.name if task else checkpoint.head_name,
                data={},
                metrics={agreement.measure: agreement.metric},
                backend=report.target,
                dtype=precision,
            )
            results.append(record)
    return results


def card_head(
    checkpoint: "Checkpoint",
    facts: CardFacts,
    target: str,
    results: "Sequence[EvaluationRecord]",
) -> list[str]:
    """Return the metadata, the title and the task of the card of an export."""
    metadata: dict[str, Any] = {}
    if (licence := checkpoint.manifest.licence) and LICENCE_ID.fullmatch(licence):
        metadata["license"] = licence
    if languages := checkpoint.manifest.text_languages:
        metadata["language"] = languages
    repo = _repo(checkpoint)
    base = repo or trained_from(checkpoint.manifest.training)
    if base and is_hub_repo(base):
        metadata["base_model"] = base
        if facts.quantized:
            metadata["base_model_relation"] = "quantized"
    metadata["library_name"] = facts.library
    model = used_model(checkpoint)
    tag = model.pipeline_tag
    if tag:
        metadata["pipeline_tag"] = tag
    metadata["tags"] = list(dict.fromkeys([target, *model.tags, *checkpoint.manifest.tags]))
    task = _task(checkpoint)
    name = card_name(checkpoint.family.name, task, repo)
    metadata |= evaluation_metadata(results, name, tag)
    return [
        *markdown_front(metadata),
        "",
        f"# {markdown_text(name)}, {facts.title}",
        "",
        *([f"Task: {task.name}. {task.summary}"] if task else []),
    ]


def zoo_usage(checkpoint: "Checkpoint", options: str = "") -> list[str]:
    """Return the section of a card on running an export with zoo."""
    lines = zoo_snippet(used_model(checkpoint), options=options)
    lines = lines or [f"$ zoo info {PLACEHOLDER}"]
    return ["", "## Usage", *snippet_lines([Snippet("zoo", "console", lines)])]


def program_lines(report: "ExportReport", facts: CardFacts) -> Iterator[str]:
    """Yield the lines on programs other than zoo."""
    if report.unreadable_elsewhere is not None:
        yield from ("", f"For zoo and {report.title} only: {report.unreadable_elsewhere}.")
        return
    yield from snippet_lines(facts.snippets)
    for note in facts.notes:
        yield from ("", note)


def text_splitter(checkpoint: "Checkpoint") -> "Splitter | None":
    """Return what splits texts before ``tokenizer.json`` reads them; ``None`` for nothing.

    Programs that only read this file would get other tokens.
    """
    info = checkpoint.model.tokenizer
    return None if info is None else info.splitter


def splitter_lines(checkpoint: "Checkpoint") -> Iterator[str]:
    """Yield the lines on a library that splits texts before ``tokenizer.json`` reads the parts."""
    splitter = text_splitter(checkpoint)
    if splitter is not None:
        yield ""
        yield (
            f"Texts are split by {splitter.tool} before `tokenizer.json` reads the parts. A "
            "program that only reads this file, such as Transformers.js, gets other tokens; "
            "tokenizers of transformers for Python split texts in the same way."
        )


def used_model(checkpoint: "Checkpoint") -> UsedModel:
    """Return what snippets need to know of an exported model."""
    info = checkpoint.model.tokenizer
    return UsedModel(
        checkpoint.family,
        checkpoint.config,
        checkpoint.head_name,
        _task(checkpoint),
        checkpoint.model.pooling,
        info.special.get("mask") if info else None,
        embedding_sizes(checkpoint.manifest.training),
        # Snippets of an exported language model run its graph, and not the score of a pair.
        is_cross_encoder=scores_pairs(checkpoint.config, checkpoint.model.score_activation),
    )


def source_link(checkpoint: "Checkpoint") -> str:
    """Return the phrase that links to the repository of the weights; empty without one."""
    repo = _repo(checkpoint)
    return f" of {hub_link(repo)}" if repo else ""


def _repo(checkpoint: "Checkpoint") -> str | None:
    source = checkpoint.manifest.source
    return source.repo if source else None


def _task(checkpoint: "Checkpoint") -> "TaskSpec | None":
    training = checkpoint.manifest.training or {}
    return task_of_head(checkpoint.family, checkpoint.head_name, training.get("task"))
