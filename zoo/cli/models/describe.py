"""Text of ``zoo info``: what a directory is, its numbers, and a command to go on with."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.cli.output import fields, table
from zoo.io.numbers import format_bytes, format_count
from zoo.io.paths import directory_bytes
from zoo.io.tensors.formats import DTYPE_NAMES
from zoo.weights.outline import outline

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.training.logging.run_history import RunHistory

FLOAT32_BYTES = 4


def describe_model(checkpoint: "Checkpoint", *, verbose: bool) -> list[str]:
    """Return the lines on a converted or trained model."""
    modules = outline(checkpoint.weights.entries())
    sizes = []
    for module in modules:
        size = format_count(module.parameters)
        if len(module.names) > 1:
            size = f"{len(module.names)} \N{MULTIPLICATION SIGN} {size}"
        sizes.append(size)
    columns = {"module": [module.name for module in modules], "parameters": sizes}
    if verbose:
        from zoo.nn.layers.skip_init import init_empty_weights

        with init_empty_weights():
            model = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
        classes = {name: type(module).__name__ for name, module in model.named_modules()}
        columns["class"] = [classes.get(module.names[0], "") for module in modules]
    lines = table(list(zip(*columns.values(), strict=True)), list(columns))
    return [
        *fields(_facts(checkpoint, "model")),
        "",
        *lines,
        "",
        *_records(checkpoint, verbose=verbose),
        "next: " + _run_command(checkpoint),
    ]


def describe_export(checkpoint: "Checkpoint", *, verbose: bool) -> list[str]:
    """Return the lines on an ONNX export."""
    from zoo.inference.exported import read_export_info

    info = read_export_info(checkpoint)
    files = checkpoint.manifest.files
    rows = []
    for dtype, graphs in info.dtypes.items():
        size = 0
        for graph in graphs:
            for name, file in files.items():
                if name == graph or name.startswith(f"{graph}_data"):
                    size += file.bytes
        rows.append((dtype, format_bytes(size), ", ".join(graphs)))
    facts = _facts(checkpoint, "ONNX export")
    record = checkpoint.manifest.export or {}
    if info.min_onnxruntime:
        facts["onnxruntime"] = f"{info.min_onnxruntime} or newer"
    if "opset" in record:
        facts["opset"] = str(record["opset"])
    facts["compared"] = "with torch, within the tolerance" if info.validated else "failed"
    return [
        *fields(facts),
        "",
        *table(rows, ("dtype", "size", "graphs")),
        "",
        *_records(checkpoint, verbose=verbose),
        "next: " + _run_command(checkpoint),
    ]


def describe_target(checkpoint: "Checkpoint", *, verbose: bool) -> list[str]:
    """Return the lines on an export to a runtime other than ONNX Runtime."""
    from zoo.exporting.targets.record import read_target_info

    info = read_target_info(checkpoint)
    facts = _facts(checkpoint, f"{info.title or info.target} export")
    facts |= {"precision": info.dtype, "files": ", ".join(info.files)}
    facts["compared"] = "with torch, accepted" if info.validated else f"no: {info.unverified}"
    if info.max_rel is not None:
        facts["compared"] += f"; differs by at most {info.max_rel:.1e} of the largest magnitude"
    return [
        *fields(facts),
        "",
        *_records(checkpoint, verbose=verbose),
        "next: " + _run_command(checkpoint),
    ]


def describe_run(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values and the lines on a training run."""
    from zoo.training.logging.run_history import RunHistory
    from zoo.training.state.location import resume_command
    from zoo.training.state.progress import is_finished, list_checkpoints

    history = RunHistory.read(path)
    has_finished = is_finished(path)
    steps = history.steps
    checkpoint_steps = list(list_checkpoints(path))
    if checkpoint_steps and not has_finished:
        steps = checkpoint_steps[-1]  # A resumed run goes on there, whatever its log has.
    config = history.config
    command = str(history.manifest.get("kind", "pretrain"))
    value = {
        "path": str(path),
        "run": command,
        "finished": has_finished,
        "steps": steps,
        "parameters": history.manifest.get("parameters"),
        "seconds": history.seconds,
        "validation": history.validation[-1] if history.validation else None,
    }
    sources, source_lines = describe_sources(history)
    if sources:
        value["sources"] = sources
    state = "finished" if has_finished else "not finished"
    facts = {
        "run": str(path),
        "command": f"zoo {command}",
        "family": " ".join(str(config[key]) for key in ("family", "size") if config.get(key)),
        "objective": str(config.get("task") or config.get("objective") or ""),
        "parameters": format_count(history.manifest.get("parameters") or 0),
        "state": f"{state}, step {steps:,}",
        "on disk": format_bytes(directory_bytes(path)),
    }
    if history.validation:
        last_validation = history.validation[-1]
        numbers = {"loss": last_validation["loss"], **last_validation.get("metrics", {})}
        metrics = ", ".join(f"{name} {number:.4g}" for name, number in numbers.items())
        facts["validation"] = f"{metrics} (step {last_validation['step']:,})"
    if (path / "report.html").is_file():
        facts["report"] = str(path / "report.html")
    next_command = resume_command(command, path)
    if has_finished:
        facts["model"] = str(path / "model")
        next_command = shlex.join(["zoo", "info", str(path / "model")])
    lines = fields({name: text for name, text in facts.items() if text})
    return value, [*lines, *source_lines, "", f"next: {next_command}"]


def describe_sources(history: "RunHistory") -> tuple[dict[str, Any], list[str]]:
    """Return the values and the lines on the sources of a run; empty without any."""
    stages = history.manifest.get("mixture") or ()
    if not stages:
        return {}, []
    train = history.train[-1].get("sources", {}) if history.train else {}
    validation = history.validation[-1].get("sources", {}) if history.validation else {}
    sources: dict[str, Any] = {}
    rows = []
    for name in history.manifest.get("sources") or {}:
        shares = {}
        for stage in stages:
            counts = stage["counts"]
            shares[str(stage["step"])] = counts.get(name, 0) / sum(counts.values())
        losses = [part.get(name, {}).get("loss") for part in (train, validation)]
        sources[name] = {"shares": shares, "loss": losses[0], "validation_loss": losses[1]}
        texts = [f"{share:.2%}" for share in shares.values()]
        texts += ["" if loss is None else f"{loss:.4g}" for loss in losses]
        rows.append((name, *texts))
    header = ["source"]
    for stage in stages:
        header.append("share" if stage["step"] == 0 else f"from step {stage['step']:,}")
    header += ["loss", "validation loss"]
    return sources, ["", *table(rows, header)]


def describe_seeds(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values and the lines on a directory of runs with several seeds."""
    from zoo.training.state.progress import seed_directories

    runs = seed_directories(path)
    lines = fields({"runs": str(path), "seeds": ", ".join(run.name for run in runs)})
    value = {"path": str(path), "runs": [str(run) for run in runs]}
    return value, [*lines, "", f"next: {shlex.join(['zoo', 'compare', str(path)])}"]


def describe_comparison(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values and the lines on a pretrained model's runs next to those from scratch."""
    from zoo.training.state.progress import is_finished

    states: dict[str, bool] = {}
    for manifest in sorted([*path.glob("*/run.json"), *path.glob("*/*/run.json")]):
        states[str(manifest.parent.relative_to(path))] = is_finished(manifest.parent)
    has_finished = (path / "summary.json").is_file() and all(states.values())
    value = {"path": str(path), "finished": has_finished, "runs": states}
    rows = []
    for name, is_finished_run in states.items():
        rows.append((name, "finished" if is_finished_run else "not finished"))
    if has_finished:
        next_command = shlex.join(["zoo", "compare", str(path)])
    else:
        next_command = shlex.join(["zoo", "finetune", "--resume", str(path)])
    lines = [*fields({"comparison": str(path)}), "", *table(rows, ("run", "state"))]
    return value, [*lines, "", f"next: {next_command}"]


def describe_stages(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values and the lines on a run of several stages."""
    from zoo.io.json import read_json_object
    from zoo.training.logging.run_history import RunHistory
    from zoo.training.state.location import resume_command
    from zoo.training.state.progress import STAGES, is_finished

    states = dict[str, str]()
    command = ""
    for name in map(str, read_json_object(path / STAGES)["stages"]):
        run = path / name
        if not (run / "run.json").is_file():
            states[name] = "not begun"
            continue
        history = RunHistory.read(run)
        command = str(history.manifest.get("kind", "pretrain"))
        state = "finished" if is_finished(run) else "not finished"
        states[name] = f"{state}, step {history.steps:,}"
    has_finished = all(state.startswith("finished") for state in states.values())
    value = {"path": str(path), "run": command, "finished": has_finished, "stages": states}
    size = format_bytes(directory_bytes(path))
    facts = {"run": str(path), "command": f"zoo {command}", "on disk": size}
    if has_finished:
        next_command = shlex.join(["zoo", "info", str(path / "model")])
    else:
        next_command = resume_command(command, path)
    rows = table(list(states.items()), ("stage", "state"))
    return value, [*fields(facts), "", *rows, "", f"next: {next_command}"]


def describe_corpus(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values and the lines on a corpus."""
    from zoo.data.corpus import Corpus

    record = Corpus(path).record
    counts = ("documents", "sentences", "tokens")
    rows = []
    splits = {}
    for name, split in record.splits.items():
        numbers = {count: getattr(split, count) for count in counts}
        rows.append((name, *(f"{number:,}" for number in numbers.values())))
        splits[name] = numbers
    facts = {
        "corpus": str(path),
        "vocabulary": f"{record.vocab_size:,} tokens",
        "sources": f"{len(record.sources):,} files",
        "on disk": format_bytes(directory_bytes(path)),
    }
    value = {
        "path": str(path),
        "vocab_size": record.vocab_size,
        "splits": splits,
    }
    next_command = shlex.join(["zoo", "pretrain", "FAMILY", "--train", str(path)])
    lines = [*fields(facts), "", *table(rows, ("split", *counts)), "", f"next: {next_command}"]
    return value, lines


def describe_cleaned_texts(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values and the lines on cleaned texts."""
    from zoo.cleaning.records import read_cleaning_record

    record = read_cleaning_record(path)
    stages = []
    rows = []
    for stage in record.stages:
        stages.append({"name": stage.name, "texts": stage.texts, "characters": stage.characters})
        rows.append((stage.name, f"{stage.texts:,}", f"{stage.characters:,}"))
    facts = {
        "cleaned texts": str(path),
        "sources": f"{len(record.plan.sources):,} files",
        "rules": ", ".join(rule.name for rule in record.plan.rules) or "none",
        "on disk": format_bytes(directory_bytes(path)),
    }
    next_command = shlex.join(["zoo", "corpus", "build", str(path), "-o", f"{path.name}-corpus"])
    lines = [
        *fields(facts),
        "",
        *table(rows, ("left after", "texts", "characters")),
        "",
        f"next: {next_command}",
    ]
    return {"path": str(path), "stages": stages}, lines


def describe_values(value: Mapping[str, Any], *, following: str) -> list[str]:
    """Return the lines on a model that is not here, or not converted."""
    facts = {}
    nested = {}
    for key, item in value.items():
        if key == "parameters" and item:
            facts["parameters"] = f"{format_count(item)} ({item:,})"
            facts["float32"] = format_bytes(FLOAT32_BYTES * item)
        elif isinstance(item, Mapping):
            nested[key] = item
        elif item not in (None, "", [], ()):
            facts[key.replace("_", " ")] = _text(item)
    lines = fields(facts)
    for key, item in nested.items():
        if item:
            lines += ["", key, *_nested(item)]
    return [*lines, "", f"next: {following}"]


def tasks_of(checkpoint: "Checkpoint") -> list[str]:
    """Return the tasks that a model serves; for an export, the ones that its runtime runs."""
    if not checkpoint.is_export:
        return list(checkpoint.tasks)
    from zoo.exporting import backend  # loads numpy

    return backend.tasks_of(checkpoint)


def _facts(checkpoint: "Checkpoint", title: str) -> dict[str, str]:
    """Return what a model and an export have in common; ``title`` names the directory."""
    manifest = checkpoint.manifest
    model = checkpoint.model
    parameters = checkpoint.weights.parameters()
    source = manifest.source
    sizes = [format_bytes(directory_bytes(checkpoint.path))]
    if not checkpoint.is_export:  # The graphs of an export are listed with their dtypes.
        for dtype, number in manifest.dtypes.items():
            sizes.append(f"{number} tensors {DTYPE_NAMES.get(dtype, dtype)}")
    facts = {
        title: str(checkpoint.path),
        "family": checkpoint.family.name,
        "head": f"{checkpoint.head_name}: {checkpoint.head.summary}",
        "tasks": ", ".join(tasks_of(checkpoint)),
        "parameters": f"{format_count(parameters)} ({parameters:,})",
        "on disk": ", ".join(sizes),
    }
    limits = (checkpoint.family.max_seq_len(checkpoint.config), model.max_tokens)
    if longest := min(filter(None, limits), default=None):
        facts["longest text"] = f"{longest:,} tokens"
    if model.pooling:
        facts["pooling"] = model.pooling.describe()
    if source is not None:
        revision = f" at {source.revision[:12]}" if source.revision else ""
        facts["source"] = f"{source.repo or source.reference}{revision}"
    if manifest.training:
        steps = manifest.training.get("steps")
        facts["trained"] = f"{steps:,} steps" if isinstance(steps, int) else "here"
    facts["licence"] = manifest.licence or ""
    return {name: text for name, text in facts.items() if text}


def _records(checkpoint: "Checkpoint", *, verbose: bool) -> list[str]:
    """Return the configuration and the evaluations; with ``verbose`` also digests."""
    import msgspec

    config = msgspec.to_builtins(checkpoint.config)
    if not checkpoint.head.has_labels:
        config.pop("labels", None)
    lines = ["configuration", *_nested(config), ""]
    for record in checkpoint.manifest.evaluations:
        numbers = {}
        for name, number in record.metrics.items():
            numbers[name] = f"{number:,.0f}" if number.is_integer() else f"{number:.4f}"
        title = f"evaluation: {record.task} on {', '.join(record.data)}"
        lines += [title, *fields(numbers, "  "), ""]
    if verbose:
        digests = []
        for name, file in checkpoint.manifest.files.items():
            digests.append((name, f"{file.bytes:,}", file.blake3))
        lines += [*table(digests, ("file", "bytes", "BLAKE3"), wraps=("BLAKE3",)), ""]
    return lines


def _nested(values: Mapping[str, Any]) -> list[str]:
    """Return indented lines of values, without those that are not set."""
    texts = {}
    for name, value in values.items():
        if value not in (None, "", [], {}):
            texts[name] = _text(value)
    return fields(texts, "  ")


def _run_command(checkpoint: "Checkpoint") -> str:
    """Return a command that runs the model."""
    from zoo.conversion.model_card import task_of_head
    from zoo.conversion.usage import UsedModel, zoo_snippet

    info = checkpoint.model.tokenizer
    training = checkpoint.manifest.training or {}
    task = task_of_head(checkpoint.family, checkpoint.head_name, training.get("task"))
    model = UsedModel(
        checkpoint.family,
        checkpoint.config,
        checkpoint.head_name,
        task,
        pooling=checkpoint.model.pooling,
        mask_token=info.special.get("mask") if info else None,
    )
    snippet = zoo_snippet(model, shlex.quote(str(checkpoint.path)))
    return snippet[0].removeprefix("$ ") if snippet else "zoo run --help"


def _text(value: Any) -> str:
    """Return a value of a configuration on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
