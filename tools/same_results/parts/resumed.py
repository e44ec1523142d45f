"""Runs of another version that are resumed from a checkpoint in their middle."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools.same_results.context import Context, Results
from tools.same_results.parts import embeddings, tasks
from tools.same_results.records import run_record

HOME = "home"
# runs of the parts, besides one of each task and each loss of embeddings
RUNS = (
    "pretrained/bert",
    "pretrained/electra",
    "pretrained/gpt",
    "pretrained/t5",
    "finetuned/text-classification-seeds",
    "finetuned/token-classification-crf",
    "adapters/lora-bert",
    "adapters/houlsby-bert",
    "distilled/kl-0",
    "distilled/hidden-mse-0",
    "distilled/recipe-tinybert-task",
    "distilled/recipe-theseus",
    "distilled/recipe-embeddings",
    "distilled/recipe-static",
    "distilled/cached-text",
)


def names_of_runs(context: Context) -> Iterator[str]:
    """Yield the names of the runs, below the directory of another version's runs."""
    yield from RUNS
    for task in tasks.all_cases(context.names):
        yield "finetuned/reranker-lambda" if task == "reranker" else f"finetuned/{task}"
    for task, variants in embeddings.all_cases(context.names).items():
        for variant in variants:
            if task == "sentence-embedding" or variant == "multiple-negatives":
                yield f"embeddings/{task}/{variant.replace(' ', '-')}"


def finished(context: Context) -> Results:
    """Yield the records of the runs as they ended."""
    for name in names_of_runs(context):
        yield name, run_record(context.work / name, context.clean)


def collect(context: Context, runs: Path) -> Results:
    """Yield the records of runs of another version, resumed in a copy."""
    for name in names_of_runs(context):
        run = context.work / "resumed" / name
        shutil.copytree(runs / name, run, symlinks=True)
        command = cut(run)
        words = (command, "--resume", run, "--offline", "--device", "cpu")
        yield name, context.attempt(*words) or run_record(run, context.clean)


def cut(run: Path) -> str:
    """Remove what a run wrote after its first checkpoint; return the command that resumes it."""
    logs = sorted(log.parent for log in run.rglob("metrics.jsonl"))
    plan = run / "stages.json"
    if plan.exists():
        stages = json.loads(plan.read_text())["stages"]
        logs.sort(key=lambda folder: stages.index(folder.name))
    first_run = logs[0]
    for path in run.iterdir():
        if run == first_run:
            break
        if path.is_symlink():
            path.unlink()
        elif path.is_dir() and path != first_run:
            shutil.rmtree(path)
    checkpoints = sorted((first_run / "checkpoints").iterdir())
    for checkpoint in checkpoints[1:]:
        shutil.rmtree(checkpoint)
    shutil.rmtree(first_run / "model")
    return str(json.loads((first_run / "run.json").read_text()).get("kind", "pretrain"))
