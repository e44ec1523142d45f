"""Teachers and runs of distillation that take about a second."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.finetuning.making import SETTINGS, finetune, labelled, texts, write_table
from tests.finetuning.making import settings as finetune_settings
from tests.once import written_once
from tests.tasks.multiple_choice.making import chosen
from tests.tasks.question_answering.making import questions_about_letters
from tests.tasks.token_classification.making import tagged
from tests.training.runs import SMALL, assert_resumes_from, run_training, width_of
from zoo.distillation.runs import DistillRun
from zoo.distillation.setup import DistillSetup, distill_setup
from zoo.training.build import prepare_run
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext

DISTILL_SMALL = {name: value for name, value in SMALL.items() if name != "vocab_size"}


@functools.cache
def pretrained(family: str, **changes: Any) -> Path:
    """Return the model of a pretraining run of a few steps."""
    # a recurrent layer takes the positions of a row one by one
    shape = {"seq_len": 16} if family == "elmo" else {"config": {"num_layers": 2}}
    few = {**shape, "max_steps": 4, **changes}
    name = "-".join(["teacher", family, *(f"{key}-{value}" for key, value in changes.items())])
    return written_once(name, lambda path: run_training(path / "run", family, **few)) / "run/model"


def narrow(student: str, **fields: Any) -> dict[str, Any]:
    """Return the settings of a student: of a family, as wide as the teachers, or a checkpoint."""
    return {"name": student, **width_of(student), **fields}


def settings(teacher: Path | str, student: str, /, **changes: Any) -> dict[str, Any]:
    """Return the settings of a run on text."""
    tree = {"distillation": {"teachers": [str(teacher)]}, "student": narrow(student)}
    return deep_merge(tree, DISTILL_SMALL, changes)


def distill(path: Path, tree: Mapping[str, Any]) -> Path:
    """Train a run, and return its directory."""
    DistillRun(tree, DistContext.initialize("cpu"), path).start()
    return path


def make_setup(tree: Mapping[str, Any]) -> DistillSetup:
    """Return the setup of settings."""
    return distill_setup(DistillRun.build_config(tree, {}))


def assert_resumes_exactly(folder: Path, tree: Mapping[str, Any], step: int) -> Path:
    """Train a run, and resume a copy from a checkpoint; return the whole run."""
    whole = distill(folder / "whole", tree)
    assert_resumes_from(whole, folder, step, kind=DistillRun)
    return whole


SHORT_RUN = {"max_steps": 4, "eval_steps": 2, "save_steps": 1, "save_total_limit": 9}
SEQ2SEQ_FAMILIES = {"seq2seq": "t5", "causal-lm": "gpt"}


def table(path: Path) -> Path:
    return write_table(path, [{"text": t, "label": t[:3]} for t in texts(40)])


def make_seq2seq_teacher(task: str = "seq2seq") -> Path:
    def write(folder: Path) -> None:
        tree = finetune_settings(
            SEQ2SEQ_FAMILIES[task],
            table(folder / "t.jsonl"),
            task=task,
            data={"label": "label"},
            config={"num_layers": 2} | ({"num_decoder_layers": 2} if task == "seq2seq" else {}),
            max_steps=30 if task == "seq2seq" else 4,
            eval_steps=30,
            task_args={"generate": False} if task == "seq2seq" else {},
            optimizer={"learning_rate": 1e-2 if task == "seq2seq" else 1e-6},
        )
        finetune(folder / "run", tree)

    return written_once(f"teacher-of-{task}", write) / "run/model"


def make_seq2seq_tree(
    folder: Path, recipe: dict[str, Any], task: str = "seq2seq"
) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "distillation": {"teachers": [str(make_seq2seq_teacher(task))], **recipe},
        "student": narrow(SEQ2SEQ_FAMILIES[task], num_layers=1),
        "task": task,
        "data": {"train": [str(table(folder / "t.jsonl"))], "label": "label"},
        "task_args": {"generate": False} if task == "seq2seq" else {},
    }
    if task == "seq2seq":
        tree["student"]["num_decoder_layers"] = 1
    return deep_merge(SETTINGS, tree, SHORT_RUN)


NO_DROPOUT = {"config": {"dropout": 0.0, "attention_dropout": 0.0}}
Table = Callable[[Path], Path]


def numbers(path: Path) -> Path:
    return write_table(path, [{"text": t, "label": len(t) / 40} for t in texts(40)])


def several(path: Path) -> Path:
    return write_table(
        path, [{"text": t, "label": ",".join(sorted({*t} & {*"abc"}))} for t in texts(40)]
    )


def documents(path: Path) -> Path:
    return write_table(path, [{"text": t} for t in texts(40)])


TASKS: dict[str, tuple[str, Table, str]] = {
    "text-classification": ("t.jsonl", labelled, "kl"),
    "regression": ("r.jsonl", numbers, "logits"),
    "multi-label": ("m.tsv", several, "logits"),
    "token-classification": ("w.conll", tagged, "kl"),
    "question-answering": ("q.jsonl", questions_about_letters, "kl"),
    "multiple-choice": ("c.jsonl", chosen, "error"),
    "causal-lm": ("d.jsonl", documents, "kl"),
}


def family_of(task: str) -> str:
    return "gpt" if task == "causal-lm" else "bert"


def tune_teacher(folder: Path, task: str, file: Path, family: str = "", **changes: Any) -> Path:
    """Return the model of a fine-tuning run of a few steps."""
    few = {"max_steps": 2, "eval_steps": 2, "task": task, "optimizer": {"learning_rate": 0.01}}
    tree = finetune_settings(family or family_of(task), file, **deep_merge(few, changes))
    return finetune(folder, tree) / "model"


def task_settings(
    teachers: list[Path], student: Any, task: str, file: Path, /, **changes: Any
) -> Any:
    tree = {
        "distillation": {"teachers": [str(teacher) for teacher in teachers]},
        "student": narrow(str(student)),
        "task": task,
        "data": {"train": [str(file)]},
        "max_steps": 2,
        "eval_steps": 2,
    }
    return deep_merge(SETTINGS, tree, changes)


def views(tree: Any, folder: Path) -> Any:
    """Return objective, results and batch of the first forward pass of a run."""
    setup = make_setup(tree)
    prepared = prepare_run(setup, folder, DistContext.initialize("cpu"))
    batch = prepared.train_dataloader.batches(0)[0]
    prepared.train_dataloader.close()
    outputs = setup.objective.forward(prepared.loss_module.model.eval(), batch.tensors)
    return setup.objective, outputs, batch
