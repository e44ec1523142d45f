"""Model card of a directory in the Hub's layout: what the model does, its use and its results."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from zoo.conversion.infer_head import ConversionPlan
from zoo.conversion.open import OpenCheckpoint
from zoo.conversion.report import ConversionReport
from zoo.conversion.usage import UsedModel, embedding_sizes, scores_pairs, usage
from zoo.hub.upload.plan import LICENCE_ID
from zoo.io.page_text import (
    hub_link,
    is_hub_repo,
    markdown_block,
    markdown_code,
    markdown_front,
    markdown_table,
    markdown_text,
    shell_line,
)
from zoo.io.tensors.formats import DTYPE_NAMES
from zoo.metrics import METRICS
from zoo.plugins.tasks import built_in_tasks
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint import Manifest
    from zoo.checkpoint.records import EvaluationRecord
    from zoo.families.base import Family
    from zoo.families.tasks import TaskSpec

MODEL_CARD = "README.md"
# Separators between the values of a setting such as `data.train=[/a/b, c]`.
SEPARATORS = re.compile(r"(:\s+|[=,\[\]{}'\"]+\s*)")
MAX_LABELS_SHOWN = 20
TRAINING_COMMANDS = ("pretrain", "finetune", "distill")  # A card shows them, to be run again.
Rows = list[tuple[str, ...]]


def model_card(
    opened: OpenCheckpoint,
    plan: ConversionPlan,
    report: ConversionReport,
    mask_token: str | None = None,
) -> bytes:
    """Return the model card of a conversion to the Hub's layout.

    https://huggingface.co/docs/hub/model-cards describes the YAML at the top. Cards have no date
    and no local path, so that a conversion that is repeated writes the same bytes. Digests of
    files and what became of each tensor are in the manifest of the model in zoo's layout.
    """
    training: Mapping[str, Any] = {}
    results = list["EvaluationRecord"]()
    training_lines = list[str]()
    if opened.checkpoint is not None:
        manifest = opened.checkpoint.manifest
        if opened.checkpoint.head_name == plan.head:
            training = manifest.training or {}
            results = list(evaluation_records(manifest))
        if manifest.training:
            training_lines = list(_training(manifest.training))
    task = task_of_head(opened.family, plan.head, training.get("task"))
    pooling = opened.pooling
    model = UsedModel(
        opened.family,
        plan.config,
        plan.head,
        task,
        pooling,
        mask_token,
        embedding_sizes(training),
        is_cross_encoder=scores_pairs(plan.config, plan.score_activation, plan.pairs),
    )
    repo, _ = _origin(opened)
    name = card_name(opened.family.name, task, repo)
    lines = [
        *markdown_front(card_metadata(opened, model, report, results, name)),
        "",
        f"# {markdown_text(name)}",
        "",
        *_summary(opened, plan, report, task),
        *usage(model),
        *evaluation_lines(results),
        *training_lines,
        *table_lines("## Origin", _origin_rows(opened, plan, report)),
    ]
    return ("\n".join(lines) + "\n").encode()


def card_name(family: str, task: "TaskSpec | None", repo: str | None) -> str:
    """Return the name of a model: of its repository, or of its family and task."""
    if repo is not None:
        return repo.rpartition("/")[2]
    if task is None:
        return family
    return f"{family} for {task.name.replace('-', ' ')}"


def task_of_head(family: "Family", head_name: str, trained_task: Any = None) -> "TaskSpec | None":
    """Return the task of a head: the one it was trained for, or the first that fits."""
    head = family.heads()[head_name]
    axes = head.outputs.values()
    candidates = []
    for spec in built_in_tasks().values():
        if spec.command in head.tasks and (not spec.output or spec.output in axes):
            candidates.append(spec)
    for spec in candidates:
        if spec.name == trained_task:
            return spec
    for spec in candidates:
        if spec.pipeline_tag:
            return spec
    return candidates[0] if candidates else None


def card_metadata(
    opened: OpenCheckpoint,
    model: UsedModel,
    report: ConversionReport,
    results: "Sequence[EvaluationRecord]",
    name: str,
) -> dict[str, Any]:
    """Return the YAML of a card: licence, languages, library, task, base model and results."""
    metadata: dict[str, Any] = {}
    if report.licence and LICENCE_ID.fullmatch(report.licence):
        metadata["license"] = report.licence
    if report.languages:
        metadata["language"] = list(report.languages)
    base = base_model(opened)
    if base is not None:
        metadata["base_model"] = base
        metadata["base_model_relation"] = "finetune"
    if opened.family.weight_format == "safetensors":
        metadata["library_name"] = "transformers"
        if model.tags:
            metadata["library_name"] = "sentence-transformers"
    tag = model.pipeline_tag
    if tag:
        metadata["pipeline_tag"] = tag
    tags = dict.fromkeys([*model.tags, *report.tags])
    if tags:
        metadata["tags"] = list(tags)
    metadata |= evaluation_metadata(results, name, tag)
    return metadata


def evaluation_metadata(
    results: "Sequence[EvaluationRecord]", name: str, tag: str | None
) -> dict[str, Any]:
    """Return the YAML of results: names of metrics, and an entry for each value.

    Args:
        results: evaluations of the model.
        name: name of the model on its card.
        tag: task of the model on the Hub, if any.
    """
    from huggingface_hub import EvalResult
    from huggingface_hub.repocard_data import eval_results_to_model_index

    metric_names = {metric.name for metric in METRICS}
    metric_names |= {"loss", "perplexity", "bits_per_byte"}
    entries = []
    for record in results:
        # The file that was read, which is not a data set of the Hub.
        dataset = _dataset(record)
        for metric, value in record.metrics.items():
            if metric not in metric_names:
                continue
            entry = EvalResult(
                task_type=tag or results[0].task,
                task_name=record.task,
                dataset_type=dataset,
                dataset_name=dataset,
                metric_type=metric,
                metric_value=value,
                metric_name=metric.replace("_", " "),
            )
            entries.append(entry)
    if not entries:
        return {}
    card_metrics = dict.fromkeys(entry.metric_type for entry in entries)
    return {
        "metrics": list(card_metrics),
        "model-index": eval_results_to_model_index(name, entries),
    }


def _dataset(record: "EvaluationRecord") -> str:
    return ", ".join(sorted(record.data)) or "evaluation data"


def base_model(opened: OpenCheckpoint) -> str | None:
    """Return the repository of the model that was trained further, if any."""
    if opened.checkpoint is None:
        return None
    return trained_from(opened.checkpoint.manifest.training)


def trained_from(training: Mapping[str, Any] | None) -> str | None:
    """Return the repository of the model that a training began with, if any.

    Args:
        training: record of the training in the manifest.
    """
    value: Any = training
    for key in ("init_from", "models", "model", "source", "repo"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    if isinstance(value, str) and is_hub_repo(value):
        return value
    return None


def _origin(opened: OpenCheckpoint) -> tuple[str | None, str | None]:
    """Return the repository and the commit of the weights."""
    if opened.checkpoint is None:
        return opened.source.repo, opened.source.revision
    source = opened.checkpoint.manifest.source
    if source is None:
        return None, None
    return source.repo, source.revision


def _summary(
    opened: OpenCheckpoint,
    plan: ConversionPlan,
    report: ConversionReport,
    task: "TaskSpec | None",
) -> Iterator[str]:
    """Yield a paragraph: what the model does, what it is, what it was trained from."""
    pooled = opened.pooling is not None
    if pooled:
        yield "Encodes texts as vectors whose similarity reflects their meaning."
    elif task is not None:
        yield f"Task: {task.name}. {task.summary}"
    labels = getattr(plan.config, "labels", ())
    if labels and "classify" in opened.family.heads()[plan.head].tasks:
        names: list[str] = [markdown_code(label) for label in labels[:MAX_LABELS_SHOWN]]
        if len(labels) > MAX_LABELS_SHOWN:
            names.append("...")
        yield f"Labels: {', '.join(names)}."
    description = (
        f"A model of the family {opened.family.name} with the head {plan.head} and "
        f"{report.parameters:,} parameters"
    )
    base = base_model(opened)
    if base is not None:
        description += f", trained from {hub_link(base)}"
    yield f"{description}."


def _origin_rows(opened: OpenCheckpoint, plan: ConversionPlan, report: ConversionReport) -> Rows:
    repo, revision = _origin(opened)
    rows: Rows = [("licence", report.licence or "not stated")]
    if opened.checkpoint is not None:
        base_licence = opened.checkpoint.manifest.base_licence
        if base_licence:
            rows.append(("licence of the base model", base_licence))
    if repo is not None:
        rows.append(("source", hub_link(repo)))
        if revision:
            rows.append(("commit", revision))
    rows.append(("dtype", ", ".join(report.dtypes)))
    if repo is not None and is_hub_repo(repo):
        # The command writes the same weights from the source.
        words = ["zoo", "convert", repo]
        if revision:
            words += ["--revision", revision]
        words += ["--head", plan.head, "--dtype", DTYPE_NAMES[report.main_dtype]]
        words += ["--to", "hub", "-o", "DIR"]
        rows.append(("command", markdown_code(shell_line(words))))
    rows.append(("written by", f"plm-zoo {__version__}"))
    return rows


def _training(training: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings that matter, the data and the command of a training."""
    data = training.get("data")
    if not isinstance(data, Mapping):
        data = {}
    rows: Rows = []
    for key in ("objective", "steps", "epochs", "tokens", "seed"):
        if key in training:
            rows.append((key, _value_text(training[key])))
    settings = training.get("settings")
    if isinstance(settings, Mapping):
        rows += _flatten("", settings)
    options = training.get("task_args")
    if isinstance(options, Mapping):
        rows += _flatten("", options)
    if isinstance(data.get("rows"), Mapping):
        for split, number in data["rows"].items():
            rows.append((f"rows, {split}", _value_text(number)))
    for split in ("train", "eval"):
        if isinstance(data.get(split), Mapping) and data[split]:
            names = ", ".join(PurePath(str(name)).name for name in data[split])
            rows.append((f"data, {split}", names))
    rows += _source_rows(training.get("sources"))
    yield from table_lines("## Training", rows)
    command = training.get("command")
    if not isinstance(command, str):
        return
    words = _short_words(command)
    if len(words) > 1 and words[0] == "zoo" and words[1] in TRAINING_COMMANDS:
        yield ""
        yield from markdown_block("console", [f"$ {shell_line(words)}"])


def _source_rows(sources: Any) -> Rows:
    """Return the share of each source in the training data, and how often it was read."""
    rows: Rows = []
    if not isinstance(sources, Mapping):
        return rows
    for name, source in sources.items():
        share = source.get("share") if isinstance(source, Mapping) else None
        epochs = source.get("epochs") if isinstance(source, Mapping) else None
        if isinstance(share, float | int) and isinstance(epochs, float | int):
            rows.append((f"source {name}", f"{share:.2%} of the rows, {epochs:g} epochs"))
    return rows


def without_directories(record: Any) -> Any:
    """Return a nested record in which only the last part of absolute paths is left."""
    if isinstance(record, Mapping):
        short_record = {}
        for key, value in record.items():
            if key == "command" and isinstance(value, str):
                short_record[key] = _short_command(value)
            else:
                short_record[key] = without_directories(value)
        return short_record
    if isinstance(record, list | tuple):
        return [without_directories(value) for value in record]
    if isinstance(record, str):
        return _value_text(record)
    return record


def _short_command(command: str) -> str:
    """Return a command in which only the last part of absolute paths is left."""
    return shlex.join(_short_words(command))


def _short_words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:  # The manifest was written by hand.
        words = command.split()
    short_words = []
    for word in words:
        parts = SEPARATORS.split(word)
        short_words.append("".join(map(_value_text, parts)))
    return short_words


def evaluation_records(manifest: "Manifest") -> "Iterator[EvaluationRecord]":
    """Yield the evaluations of a model; without any, the best one of its training."""
    from zoo.checkpoint.records import EvaluationRecord

    training: Mapping[str, Any] = manifest.training or {}
    yield from manifest.evaluations
    metrics = training.get("metrics")
    if manifest.evaluations or not isinstance(metrics, Mapping) or not metrics:
        return
    names = list[str]()
    data = training.get("data")
    if isinstance(data, Mapping):
        eval_files = data.get("eval")
        if isinstance(eval_files, Mapping):
            names = [PurePath(str(name)).name for name in eval_files]
    if not names:
        names = ["held-out part of the training data"]
    values = {}
    for metric, value in metrics.items():
        if isinstance(value, int | float):
            values[str(metric)] = float(value)
    digests: Any = dict.fromkeys(names)
    yield EvaluationRecord(task=str(training.get("task", "")), data=digests, metrics=values)


def evaluation_lines(records: "Sequence[EvaluationRecord]") -> Iterator[str]:
    """Yield a table of the metrics on each data set, with their intervals."""
    for number, record in enumerate(records):
        if number == 0:
            yield from ("", "## Evaluation")
        notes = [f"{name} {value}" for name, value in _flatten("", record.settings)]
        if record.backend:
            notes.append(f"{record.backend}, {record.dtype}")
        caption = f"{markdown_text(record.task)} on {markdown_text(_dataset(record))}"
        if notes:
            caption += f" ({markdown_text('; '.join(notes))})"
        yield ""
        yield f"{caption}:"
        rows = []
        for name, value in record.metrics.items():
            interval = record.intervals.get(name)
            if interval is not None:
                rows.append((name, f"{value:.4f}", f"{interval[0]:.4f} to {interval[1]:.4f}"))
            elif value.is_integer():
                rows.append((name, f"{value:,.0f}", ""))
            else:
                rows.append((name, f"{value:.4f}", ""))
        yield from table_lines("", rows, ("metric", "value", "95 % interval"))


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each value of a nested record."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flatten(f"{prefix} {key}".strip(), part)
    elif isinstance(value, list | tuple):
        yield prefix, ", ".join(_value_text(part) for part in value)
    elif value is not None:
        yield prefix, _value_text(value)


def _value_text(value: Any) -> str:
    """Return a value as text; an absolute path is shortened to its last part."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    if text.startswith(("/", "~")):
        return PurePath(text).name
    return text


def table_lines(
    title: str, rows: Sequence[tuple[str, ...]], header: Sequence[str] = ("", "")
) -> Iterator[str]:
    """Yield the lines of a table of names and values; none without rows."""
    if not rows:
        return
    yield ""
    if title:
        yield title
        yield ""
    yield from markdown_table(rows, header)
