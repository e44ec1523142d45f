"""Runs of seconds, to check that a family can be pretrained and fine-tuned."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.data.cache import SAMPLE
from zoo.families.base import Family
from zoo.families.presets import DEFAULT, TINY
from zoo.io.json import dump_json
from zoo.plugins.tasks import public_tasks

SETTINGS = {
    "data": {
        "paths": [str(SAMPLE / "alice.txt")],
        "eval_paths": [str(SAMPLE / "looking_glass.txt")],
    },
    "vocab_size": 400,
    "global_batch_tokens": 512,
    "max_steps": 20,
    "logging_steps": 1,
    "eval_sequences": 8,
}
LENGTH = 64


def smoke_train(family: Family, config: Any, path: Path) -> list[float]:
    """Pretrain a model by the recipe for ``tiny`` on two sample books; return the losses."""
    from zoo.training.distributed.context import DistContext
    from zoo.training.run import PretrainRun

    PretrainRun(smoke_settings(family, config), DistContext.initialize("cpu"), path).start()
    return training_losses(path)


def smoke_objective(family: Family, config: Any, objective: str, path: Path) -> None:
    """Train two steps by an objective with its default options, and evaluate."""
    from zoo.training.distributed.context import DistContext
    from zoo.training.run import PretrainRun

    settings = smoke_settings(family, config)
    if objective != family.recipe("tiny").objective:
        settings |= {"objective": objective, "objective_args": {}}
    settings |= {"max_steps": 2, "eval_steps": 2}
    PretrainRun(settings, DistContext.initialize("cpu"), path).start()


def smoke_settings(family: Family, config: Any) -> dict[str, Any]:
    """Return the settings of ``smoke_train``."""
    tiny = msgspec.to_builtins(family.sizes()["tiny"])
    changes = {k: v for k, v in msgspec.to_builtins(config).items() if v != tiny[k]}
    changes.pop("vocab_size", None)
    length = min(LENGTH, family.max_seq_len(config) or LENGTH)
    return {"family": family.name, "seq_len": length, "config": changes, **SETTINGS}


def training_losses(path: Path) -> list[float]:
    """Return the training loss of each step of a run."""
    # Terms that are 0 at first, because a later stage trains them, do not count
    log = (path / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [record for record in map(json.loads, log) if record["split"] == "train"]
    first = records[0]["losses"]
    terms = [name for name, value in first.items() if value]
    if len(terms) == len(first):
        return [record["loss"] for record in records]
    return [sum(record["losses"][name] for name in terms) for record in records]


# task of fine-tuning -> the run that shows that a family learns it
SMOKE_TASKS = {spec.name: spec.smoke for spec in public_tasks("train") if spec.smoke is not None}
WORDS = ("good", "fine", "great", "bad", "poor", "weak")  # the first three have one label


def smoke_finetune(family: Family, path: Path, task: str) -> list[float]:
    """Fine-tune a random ``tiny`` model to tell two kinds of words apart; return the losses."""
    smoke = SMOKE_TASKS[task]
    settings = {"batch_size": smoke.batch_size, "max_steps": smoke.steps, "logging_steps": 1}
    _finetune(family, path, task, settings)
    return training_losses(path)


def _finetune(family: Family, path: Path, task: str, changes: Mapping[str, Any]) -> None:
    """Fine-tune a random ``tiny`` model, by the preset ``tiny`` if the family has one."""
    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.distributed.context import DistContext

    row = SMOKE_TASKS[task].row
    good = WORDS[:3]
    bad = WORDS[3:]
    rows = []
    for number in range(40):
        for word in WORDS:
            is_good = word in good
            opposites = bad if is_good else good
            rows.append(row(number, word, is_good, opposites[number % 3]))
    table = path.with_suffix(".jsonl")
    table.write_text("".join(dump_json(row) + "\n" for row in rows), encoding="utf-8")
    settings: dict[str, Any] = {
        "family": family.name,
        "task": task,
        "data": {"train": [str(table)]},
        "vocab_size": 400,
        "report_to": [],
        "preset": TINY,
    }
    if TINY not in family.presets():
        settings["preset"] = DEFAULT
        settings["optimizer"] = {"learning_rate": 1e-3}
    FineTuneRun({**settings, **changes}, DistContext.initialize("cpu"), path).start()


def resume_finetune(family: Family, path: Path, task: str) -> list[str]:
    """Fine-tune for four steps, resume from the second; return the files that differ."""
    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.distributed.context import DistContext
    from zoo.training.state.progress import list_checkpoints
    from zoo.training.state.verify import differing_files

    dropout = {"dropout": 0.1} if "dropout" in family.config_type.__struct_fields__ else {}
    steps = {"max_steps": 4, "save_steps": 2, "eval_steps": 4, "save_total_limit": 2}
    steps["keep_optimizer"] = True  # of the checkpoint before the last one
    _finetune(family, path, task, {"batch_size": 8, "logging_steps": 1, "config": dropout, **steps})
    copy = path.with_name(f"{path.name}-resumed")
    shutil.copytree(path, copy)
    last = list_checkpoints(copy)[steps["max_steps"]]
    for written in (last, copy / "model"):
        shutil.rmtree(written)
    FineTuneRun({}, DistContext.initialize("cpu")).resume(copy)
    return differing_files(path, copy)
