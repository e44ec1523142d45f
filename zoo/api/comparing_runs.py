"""Two fine-tuned models, or two for each task, compared by tests on their evaluation data."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.api.evaluation import evaluate
from zoo.data.readers.problems import InvalidRows
from zoo.errors import SourceError, UsageError
from zoo.plugins.tasks import find_task
from zoo.training.state.progress import is_seed_directory, seed_directories
from zoo.training.state.run_manifest import MANIFEST

if TYPE_CHECKING:
    from zoo.evaluation.compare_predictions import SystemComparison

MODEL = "model"
PREDICTIONS = "evaluation.jsonl"  # Of two runs; those of several tasks have the tasks' names.
# Settings of data that evaluations take as arguments.
DATA_SETTINGS = ("text", "pair", "label", "skip_invalid")
BY_FILES = "give files of `zoo eval --predictions` of both systems on the same data"


def compare_models(
    first: Path, second: Path, *, metrics: Sequence[str] = (), seed: int = 0
) -> "list[SystemComparison]":
    """Evaluate two runs of fine-tuning on their evaluation data, and test the differences.

    Args:
        first: a run, runs of several seeds, whose median model is taken, or a directory with runs
            that have names of tasks, such as one of ``zoo finetune --suite``.
        second: what is compared with it.
        metrics: see ``compare_predictions``.
        seed: seed of the tests.

    Raises:
        UsageError: one has other tasks or other evaluation data, or none of its own.
        SourceError: a model or file is missing.
    """
    from zoo.evaluation.compare_predictions import compare_predictions

    runs = [_find_runs(path) for path in (first, second)]
    _require_same_tasks(first, second, *runs)
    with tempfile.TemporaryDirectory() as folder:
        directories = [Path(folder, str(number)) for number in range(len(runs))]
        runs_by_file = {}
        for directory, paths in zip(directories, runs, strict=True):
            directory.mkdir()
            for name, path in paths.items():
                file = directory / (f"{name}.jsonl" if name else PREDICTIONS)
                _write_predictions(path, file)
                runs_by_file[file] = path
        is_single = "" in runs[0]
        files = [path / PREDICTIONS if is_single else path for path in directories]
        try:
            return compare_predictions(files[0], files[1], metrics=metrics, seed=seed)
        except UsageError as error:
            what = error.what
            for file, path in runs_by_file.items():
                what = what.replace(str(file), str(path))
            raise UsageError(what, error.hint, error.details) from error


def _find_runs(path: Path) -> dict[str, Path]:
    """Return name of a task -> its run; one empty name for a single run."""
    if _is_run(path):
        return {"": path}
    if not path.is_dir():
        raise SourceError(f"{path} is not a directory", "--test compares two runs")
    runs = {entry.name: entry for entry in sorted(path.iterdir()) if _is_run(entry)}
    if not runs:
        raise UsageError(f"{path} is not a run, and has none", "--test compares two runs")
    return runs


def _is_run(path: Path) -> bool:
    return (path / MANIFEST).is_file() or is_seed_directory(path)


def _require_same_tasks(
    first: Path, second: Path, first_runs: Mapping[str, Path], second_runs: Mapping[str, Path]
) -> None:
    if first_runs.keys() == second_runs.keys():
        return
    if "" in first_runs or "" in second_runs:
        raise UsageError(
            f"one of {first} and {second} is a run, and the other has runs of tasks",
            "give two runs, or two directories of them",
        )
    name = min(first_runs.keys() ^ second_runs.keys())
    raise UsageError(
        f"{name} is in one of {first} and {second} only", "give runs of the same tasks"
    )


def _write_predictions(run: Path, file: Path) -> None:
    """Write the predictions of a run's final model on its evaluation data."""
    from zoo.data.readers.text_io import split_name
    from zoo.training.state.earlier_versions import read_run_settings

    seed_runs = seed_directories(run) if is_seed_directory(run) else [run]
    settings = read_run_settings(seed_runs[0])
    task = settings.get("task")
    data: Mapping[str, Any] = settings.get("data") or {}
    if not isinstance(task, str):
        raise UsageError(f"{run} is not a run of `zoo finetune`", BY_FILES)
    if not data.get("eval"):
        raise UsageError(f"{run} was evaluated on a part of its training data", BY_FILES)
    if any(split_name(path)[0] for path in data["eval"]):
        raise UsageError(f"{run} was evaluated on several data sets", BY_FILES)
    if not (run / MODEL).is_dir():
        raise SourceError(f"{run} has no model, its training has not ended", "resume the run")
    options = _evaluation_options(task, data, settings.get("task_args") or {})
    try:
        evaluate(
            run / MODEL,
            task=task,
            eval=tuple(data["eval"]),
            predictions=file,
            record=False,
            **options,
        )
    except InvalidRows as error:
        raise error.without_option() from error


def _evaluation_options(
    task: str, data: Mapping[str, Any], task_args: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of an evaluation that a run's settings have."""
    options = {}
    for option in find_task(task, "evaluate").eval_options:
        section, _, key = option.setting.rpartition(".")
        if option.name in DATA_SETTINGS:
            value = data.get(option.name)
        elif section == "task_args":
            value = task_args.get(key)
        elif section == "data":
            value = data.get(key)
        else:
            value = None
        if value not in (None, (), [], {}):
            options[option.name] = value
    return options
