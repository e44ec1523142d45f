"""Runs of fine-tuning and their evaluations, which several parts have."""

from dataclasses import dataclass
from typing import Any

from tools.same_results.context import EVERY_STEP, SHORT, Context, settings_of
from tools.same_results.records import digest, digest_of, rounded, sorted_keys

OPTION_SETTINGS = {"--template": "template", "--label-words": "label_words"}


@dataclass(frozen=True)
class Case:
    """A run of fine-tuning.

    Attributes:
        table: name of the table.
        columns: options of its columns, also of the evaluation.
        settings: settings of the run.
        model: family of the pretrained model.
        options: further options of the command.
    """

    table: str = "samples"
    columns: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    model: str = "bert"
    options: tuple[str, ...] = ()


def with_settings(case: Case, *settings: str) -> Case:
    """Return a case with further settings."""
    return Case(case.table, case.columns, (*case.settings, *settings), case.model, case.options)


def settings_set(case: Case) -> set[str]:
    """Return the names of the task's settings that a case sets."""
    prefix = "task_args."
    names = {
        setting.removeprefix(prefix).partition("=")[0]
        for setting in case.settings
        if setting.startswith(prefix)
    }
    return names | {OPTION_SETTINGS[word] for word in case.options if word in OPTION_SETTINGS}


def command(context: Context, task: str, case: Case) -> list[Any]:
    """Return the command of a case, without its output."""
    options = [context.files.get(word, word) for word in case.options]
    return [
        "finetune",
        context.model(case.model),
        "--task",
        task,
        "--train",
        context.files[case.table],
        *case.columns,
        *options,
        *settings_of("batch_size=8", *case.settings),
        *EVERY_STEP,
        *SHORT,
        "--keep-optimizer",
    ]


def evaluated(context: Context, task: str, model: Any, data: Any, *options: Any) -> Any:
    """Return the metrics of an evaluation, and digests of its predictions and of its keys."""
    predictions = context.work / "outputs" / f"{task}-{model.parent.name}.jsonl"
    words = ("eval", model, "--task", task, "--eval", data, *options)
    result = context.json(*words, "--no-record", "--predictions", predictions)
    if "exit code" in result and "predictions" in result["message"]:
        result = context.json(*words, "--no-record")
    if "exit code" in result:
        return result
    rows = context.clean(predictions.read_text()) if predictions.exists() else ""
    return {
        "metrics": rounded(result["metrics"]),
        "all": digest_of(result["metrics"]),
        "predictions": digest(rows),
        "keys": digest_of(sorted_keys(result)),
    }
