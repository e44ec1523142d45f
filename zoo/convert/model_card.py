"""Model card of a directory in the Hub's layout: facts of the manifest, and nothing else.

https://huggingface.co/docs/hub/model-cards describes the YAML at the top. Cards have no date and no
local path, so that a conversion that is repeated writes the same bytes. The classes of
huggingface_hub would add its import to every conversion for three keys of YAML, and its
``EvalResult`` needs a dataset of the Hub, where evaluations here are of files; tests read cards by
its ``ModelCard``.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from zoo.checkpoint.records import MappingRecord
from zoo.convert.infer_head import ConversionPlan
from zoo.convert.open import OpenCheckpoint
from zoo.convert.report import ConversionReport
from zoo.io.tensors.formats import DTYPE_NAMES
from zoo.io.terminal import escape_controls
from zoo.plugins.tasks import built_in_tasks
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint.records import EvaluationRecord
    from zoo.io.digests.files import FileDigest

MODEL_CARD = "README.md"
LICENCE_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")
# between the values of a setting such as `data.train=[/a/b, c]`
SIGNS = re.compile(r"(:\s+|[=,\[\]{}'\"]+\s*)")
Rows = list[tuple[str, str]]


def model_card(opened: OpenCheckpoint, plan: ConversionPlan, report: ConversionReport) -> bytes:
    """Return the model card of a conversion to the Hub's layout."""
    manifest = opened.checkpoint.manifest if opened.checkpoint else None
    if opened.checkpoint is not None:
        mapping = opened.checkpoint.read_part("account", MappingRecord)
    else:
        mapping = msgspec.convert(report.mapping_record(), MappingRecord)
    metadata = card_metadata(opened, plan, report)
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True) if metadata else ""
    source = manifest.source if manifest else None
    files = source.files if source else {}
    repo, _ = _origin(opened)
    title = _text(repo.rpartition("/")[2]) if repo else None
    title = title or f"{opened.family.title(plan.config)}, {plan.head}"
    lines = [
        "---",
        f"{front}---",
        "",
        f"# {title}",
        "",
        f"A model of the family {opened.family.name} with the head {plan.head} and "
        f"{report.parameters:,} parameters, written by plm-zoo {__version__}.",
        *_table("", _facts(opened, plan, report)),
        *_table("## Source files", [(name, _digest(file)) for name, file in sorted(files.items())]),
        *_table("## Conversion", list(_conversion(mapping))),
    ]
    if manifest is not None and manifest.training:
        lines += _training(manifest.training)
    if opened.checkpoint is not None and opened.checkpoint.head_name == plan.head:
        lines += _evaluations(opened.checkpoint.manifest.evaluations)
    return ("\n".join(lines) + "\n").encode()


def card_metadata(
    opened: OpenCheckpoint, plan: ConversionPlan, report: ConversionReport
) -> dict[str, Any]:
    """Return the YAML of a card: licence, library and task; see ``model_card``."""
    metadata: dict[str, Any] = {}
    if report.licence and LICENCE_ID.fullmatch(report.licence):
        metadata["license"] = report.licence
    if opened.family.weight_format == "safetensors":
        pooled = opened.pooling is not None
        metadata["library_name"] = "sentence-transformers" if pooled else "transformers"
    if tag := _pipeline_tag(opened, plan):
        metadata["pipeline_tag"] = tag
    return metadata


def _pipeline_tag(opened: OpenCheckpoint, plan: ConversionPlan) -> str | None:
    head = opened.family.heads()[plan.head]
    tasks = head.tasks
    if opened.pooling is not None and "embed" in tasks:
        return "sentence-similarity"
    axes = head.outputs.values()
    for spec in built_in_tasks().values():
        if spec.command in tasks and (not spec.output or spec.output in axes) and spec.pipeline_tag:
            return spec.pipeline_tag
    return None


def _origin(opened: OpenCheckpoint) -> tuple[str | None, str | None]:
    """Return the repository and the commit of the weights."""
    if opened.checkpoint is None:
        return opened.source.repo, opened.source.revision
    source = opened.checkpoint.manifest.source
    return (source.repo, source.revision) if source else (None, None)


def _facts(opened: OpenCheckpoint, plan: ConversionPlan, report: ConversionReport) -> Rows:
    repo, revision = _origin(opened)
    rows = [("licence", report.licence or "not stated")]
    if opened.checkpoint and (licence := opened.checkpoint.manifest.base_licence):
        rows += [("licence of the base model", licence)]
    if repo is not None:
        rows += [("source", f"[{repo}](https://huggingface.co/{repo})")]
        rows += [("commit", revision)] if revision else []
    rows += [("dtypes", ", ".join(f"{n} tensors in {name}" for name, n in report.dtypes.items()))]
    labels = getattr(plan.config, "labels", ())
    if labels and "classify" in opened.family.heads()[plan.head].tasks:
        rows += [("labels", ", ".join(labels))]
    if repo is not None:
        rows += [("command", f"`{_command(repo, revision, plan.head, report)}`")]
    return rows


def _command(repo: str, revision: str | None, head: str, report: ConversionReport) -> str:
    """Return the command that writes the same weights from the source."""
    words = ["zoo convert", repo, *([f"--revision {revision}"] if revision else [])]
    words += [f"--head {head}", f"--dtype {DTYPE_NAMES[report.main_dtype]}"]
    return " ".join([*words, "--to hub -o DIR"])


def _digest(file: "FileDigest") -> str:
    return f"{file.bytes:,} bytes, BLAKE3 {file.blake3}"


def _conversion(mapping: MappingRecord) -> Iterator[tuple[str, str]]:
    """Yield what became of the tensors of the source; records of older releases say less."""
    if mapping.rebuilt:
        yield "round trip", mapping.rebuilt
    for change, count in mapping.cast.items():
        yield "cast", f"{count} tensors from {change}"
    for name, reason in mapping.dropped.items():
        yield f"dropped: {name}", reason
    for name, owner in mapping.tied.items():
        yield f"tied: {name}", f"{'equal' if mapping.tied_equal else 'tied'} to {owner}"
    for name, owner in mapping.aliases.items():
        yield f"alias: {name}", f"read as {owner}"


def _training(training: Mapping[str, Any]) -> Iterator[str]:
    """Yield the training record: the command, its data, and all other values."""
    values = dict(training)
    command, data = values.pop("command", None), values.pop("corpus", values.pop("data", None))
    yield from _table("## Training", list(_flat("", values)))
    if isinstance(command, str):
        yield from ("", "```console", f"$ {escape_controls(_without_directories(command))}", "```")
    if data:
        yield from _table("## Training data", list(_flat("", data)))


def _without_directories(command: str) -> str:
    """Return a command in which only the last part of absolute paths is left."""
    try:
        words = shlex.split(command)
    except ValueError:  # of a manifest that was written by hand
        words = command.split()
    return shlex.join("".join(map(_value, SIGNS.split(word))) for word in words)


def _evaluations(records: "Sequence[EvaluationRecord]") -> Iterator[str]:
    """Yield a table for each evaluation: its data, and its metrics with their intervals."""
    for record in records:
        rows = [(f"data {name}", _digest(file)) for name, file in sorted(record.data.items())]
        rows += list(_flat("", record.settings))
        rows += [("computed", f"{record.backend}, {record.dtype}")]
        rows += [
            (name, _measured(value, record.intervals.get(name)))
            for name, value in record.metrics.items()
        ]
        yield from _table(f"## Evaluation: {_text(record.task)}", rows)


def _measured(value: float, interval: tuple[float, float] | None) -> str:
    if value.is_integer() and interval is None:
        return f"{int(value):,}"
    shown = f"{value:.4f}"
    if interval is None:
        return shown
    return f"{shown} (95 % interval {interval[0]:.4f} to {interval[1]:.4f})"


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each value of a nested record."""
    if isinstance(value, Mapping) and _is_digest(value):
        yield prefix, f"{value['bytes']:,} bytes, BLAKE3 {value['blake3']}"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(f"{prefix} {key}".strip(), part)
    elif isinstance(value, list | tuple):
        yield prefix, ", ".join(_value(part) for part in value)
    elif value is not None:
        yield prefix, _value(value)


def _is_digest(value: Mapping[str, Any]) -> bool:
    """Return whether a value of an untyped record is the digest of a file."""
    return isinstance(value.get("bytes"), int) and isinstance(value.get("blake3"), str)


def _value(value: Any) -> str:
    """Return a value as text, of an absolute path its last part."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return PurePath(text).name if text.startswith(("/", "~")) else text


def _table(title: str, rows: Rows) -> Iterator[str]:
    if rows:
        yield from ("", title, "") if title else ("",)
        yield from ("| | |", "| --- | --- |")
        yield from (f"| {_text(name)} | {_text(value)} |" for name, value in rows)


def _text(text: str) -> str:
    """Return text of a manifest on one line, with the signs of tables and HTML escaped."""
    line = escape_controls(" ".join(text.split()))
    return line.replace("|", "\\|").replace("<", "&lt;")
