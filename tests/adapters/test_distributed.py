"""Adapters of several families, tasks and methods in two processes, and resumed."""

from pathlib import Path
from typing import Any

import pytest

from tests.finetuning.making import assert_two_processes_equal_one, finetune, settings
from tests.finetuning.tables import CLASSIFICATION, STEP, data
from tests.training.runs import assert_resumes_from
from zoo.finetuning.runs import FineTuneRun
from zoo.plugins import get_family

LONG = pytest.mark.long
CASES = [  # family, task, method, and whether FSDP is used
    # tests/training/test_distributed.py has runs without adapters
    ("gpt", "causal-lm", "lora", True),
    pytest.param("gpt", "causal-lm", "prompt", False, marks=LONG),
    pytest.param("t5", "seq2seq", "ia3", True, marks=LONG),
    pytest.param("bart", "seq2seq", "prefix", False, marks=LONG),
    pytest.param("albert", CLASSIFICATION, "houlsby", True, marks=LONG),
    pytest.param("albert", CLASSIFICATION, "parallel", False, marks=LONG),
    pytest.param("elmo", CLASSIFICATION, "lora", True, marks=LONG),
]


@pytest.mark.long
@pytest.mark.parametrize(("family", "task", "method", "fsdp"), CASES)
def test_two_processes_equal_one_and_resume(
    family: str, task: str, method: str, fsdp: bool, tmp_path: Path
) -> None:
    table, columns = data(task, tmp_path)
    fields = get_family(family).config_type.__struct_fields__
    dry = {"config": {name: 0.0 for name in fields if "dropout" in name}}
    start = settings(family, table, task=task, data=columns, vocab_size=300, **STEP, **dry)
    base = finetune(tmp_path / "base", start) / "model"
    few: dict[str, Any] = {"num_virtual_tokens": 3} if method in ("prompt", "prefix") else {}
    steps: dict[str, Any] = {
        "max_steps": 4,
        "eval_steps": 2,
        "save_steps": 2,
        "save_total_limit": 9,
    }
    if fsdp and task == "seq2seq":
        steps |= {"task_args": {"generate": False}}
    tree = settings(
        base,
        table,
        task=task,
        data={**columns, "eval": [str(table)]},
        adapter={"method": method, **few},
        fsdp=fsdp,
        optimizer={"learning_rate": 0.02},
        **steps,
        **dry,
    )
    assert_two_processes_equal_one(tmp_path, tree)
    assert_resumes_from(tmp_path / "single", tmp_path, 2, kind=FineTuneRun)
