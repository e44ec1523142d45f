"""What a record holds of a run, a directory and a text: digests, losses, and names of keys."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DIGITS = 6  # of numbers next to a digest, which show where a difference begins
EVENTS = re.compile(r"events\.out\.tfevents\.\S+")  # time, host and process of a TensorBoard file
HEX = re.compile(r"[0-9a-f]{16,}")
LOGGED = ("step", "split", "loss", "losses", "metrics", "learning_rate", "tokens")
LARGE = ("tokenizer.json", "vocab.json")  # only their first keys are listed


def digest(content: str | bytes) -> str:
    """Return a short digest."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_of(value: Any) -> str:
    """Return a digest of a JSON value."""
    return digest(json.dumps(value, sort_keys=True))


def tensors_digest(folder: Path) -> str:
    """Return a digest of the names, dtypes, shapes and bytes of all tensors below a directory."""
    result = hashlib.blake2b(digest_size=8)
    for file in sorted(folder.rglob("*.safetensors")):
        content = file.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items()):
            first, last = entry["data_offsets"]
            result.update(f"{name} {entry['dtype']} {entry['shape']}".encode())
            result.update(content[start + first : start + last])
    for file in sorted(folder.rglob("*.hdf5")):
        result.update(file.read_bytes())
    return result.hexdigest()


def rounded(value: Any) -> Any:
    """Return a JSON value with few digits of each number."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return value


def key_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every key of a JSON value, with the type of its value."""
    if isinstance(value, Mapping) and value:
        for name, entry in value.items():
            name = HEX.sub("HEX", str(name))
            yield from key_paths(entry, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for entry in value:
            yield from key_paths(entry, f"{path}[]")
    else:
        yield f"{path}: {type(value).__name__}"


def sorted_keys(value: Any) -> list[str]:
    """Return the paths of all keys, each once."""
    return sorted(set(key_paths(value)))


def json_lines(text: str) -> list[Any]:
    """Return the values of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def keys_of_file(file: Path, clean: "Cleaner") -> list[str] | None:
    """Return the keys of a JSON or YAML file; ``None`` for other files."""
    if file.suffix not in (".json", ".jsonl", ".yaml"):
        return None
    text = clean(file.read_text("utf-8"))
    if file.suffix == ".json":
        content = json.loads(text)
        if file.name in LARGE:
            content = {name: type(entry).__name__ for name, entry in content.items()}
        return sorted_keys(content)
    if file.suffix == ".jsonl":
        return sorted_keys(json_lines(text))
    return sorted_keys(yaml.safe_load(text))


def layout(folder: Path, clean: "Cleaner") -> dict[str, list[str] | None]:
    """Return file -> its keys, of all files below a directory."""
    files = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    names = {}
    for file in sorted(files):
        name = EVENTS.sub("events.out.tfevents", file.relative_to(folder).as_posix())
        names[HEX.sub("HEX", name)] = keys_of_file(file, clean) if file.exists() else None
    return names


def stage_folders(run: Path) -> list[Path]:
    """Return the folders of the runs below a directory that is no run itself."""
    return sorted(log.parent for log in run.rglob("metrics.jsonl"))


def log_record(run: Path) -> dict[str, Any]:
    """Return losses and metrics of the log of a run, and a digest of all of it."""
    lines = json_lines((run / "metrics.jsonl").read_text())
    logged = [{name: line.get(name) for name in LOGGED} for line in lines]
    evaluations = {line["split"]: line for line in lines if line["split"] != "train"}
    return {
        "losses": [rounded(line["loss"]) for line in lines if line["split"] == "train"],
        "evaluations": {
            split: rounded({"loss": line.get("loss"), **(line.get("metrics") or {})})
            for split, line in evaluations.items()
        },
        "log": digest_of(logged),
    }


def run_record(run: Path, clean: "Cleaner") -> dict[str, Any]:
    """Return what a record holds of a run: losses, metrics, weights, settings and layout."""
    stages = stage_folders(run)
    logs: dict[str, Any] = {}
    for stage in stages:
        name = stage.relative_to(run).as_posix()
        logs[name] = log_record(stage)
        model = stage / "model"
        if model.is_dir():
            logs[name]["weights"] = tensors_digest(model)
        logs[name]["settings"] = digest(clean((stage / "config.yaml").read_text()))
    result = logs.pop(".") if "." in logs else {"stages": logs}
    if (run / "model").is_dir():
        result["model"] = tensors_digest(run / "model")
    return {**result, "layout": digest_of(layout(run, clean))}


class Cleaner:
    """Replaces what differs between two runs of a command: directories that are named in texts."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        # The longest first, since one may be inside of another.
        self.folders = sorted(folders.items(), key=lambda item: -len(str(item[1])))

    def __call__(self, text: str) -> str:
        for name, folder in self.folders:
            text = text.replace(str(folder), name)
        return text


def refusals(parts: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return part -> the keys of its commands that were refused."""
    refused = {}
    for part, results in parts.items():
        keys = [key for key, value in results.items() if is_refusal(value)]
        if keys:
            refused[part] = sorted(keys)
    return refused


def is_refusal(result: Any) -> bool:
    """Return whether a result is the exit code and the message of a command."""
    return isinstance(result, dict) and "exit code" in result


def require_cases(noun: str, names: Iterable[str], cases: Iterable[str]) -> None:
    """Check that every name of a registry has a case; a missing one ends the program."""
    missing = sorted(set(names) - set(cases))
    if missing:
        raise SystemExit(f"same_results: no case for {noun} {', '.join(missing)}; add one")
