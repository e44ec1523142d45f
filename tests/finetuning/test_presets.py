"""Settings of single tasks in presets, as the papers have them."""

from typing import Any

import pytest

from zoo.data.readers.glue import GLUE, PREFIX
from zoo.finetuning.config import finetune_config
from zoo.plugins import all_families, get_family
from zoo.plugins.tasks import public_tasks

# rate, batch size, epochs, warm-up
PUBLISHED = {
    ("bert", "text-classification"): (2e-5, 32, 3, 0.1),
    ("bert", "question-answering"): (5e-5, 32, 3, 0.1),  # Devlin et al. 2019, section 4.2
    ("bert", "multiple-choice"): (2e-5, 16, 3, 0.1),  # section 4.4
    ("roberta", "question-answering"): (1.5e-5, 48, 2, 0.06),  # Liu et al. 2019, table 10
    ("roberta", "multiple-choice"): (1e-5, 16, 4, 0.06),
    ("albert", "question-answering"): (5e-5, 48, 2, 0.1),  # Lan et al. 2020, table 14
    ("albert", "multiple-choice"): (1e-5, 32, 4.4, 1 / 12),  # run_race.py, for version 2
    ("deberta", "multiple-choice"): (2e-5, 32, 6, 0.006),  # run.sh of the example of RACE
    ("electra", "question-answering"): (1e-4, 32, 2, 0.1),  # Clark et al. 2020, appendix B
}

TASKS = [task.name for task in public_tasks("train")]


def settings(family: str, task: str, **changes: Any) -> dict[str, Any]:
    return {"family": family, "task": task, "data": {"train": ["t.json"]}, **changes}


@pytest.mark.parametrize(("family", "task"), PUBLISHED)
def test_settings_are_those_of_the_paper(family: str, task: str) -> None:
    config = finetune_config(settings(family, task), {})
    assert (
        config.optimizer.learning_rate,
        config.batch_size,
        config.num_train_epochs,
        config.warmup_ratio,
    ) == PUBLISHED[family, task]
    lengths = {"question-answering": 512 if family == "electra" else 384}  # of the released code
    assert config.max_seq_len == lengths.get(task, config.max_seq_len)


def test_a_setting_of_the_run_takes_precedence() -> None:
    changes = {"batch_size": 8, "optimizer": {"learning_rate": 1e-3}}
    config = finetune_config(settings("roberta", "question-answering", **changes), {})
    assert (config.batch_size, config.optimizer.learning_rate) == (8, 1e-3)
    assert (config.num_train_epochs, config.optimizer.weight_decay) == (2, 0.01)


@pytest.mark.by_default("bert", "deberta", "gpt", "elmo", "t5", "modernbert")
@pytest.mark.parametrize("family", list(all_families()))
def test_presets_name_tasks(family: str) -> None:
    """Every preset is valid for every task, and has settings of tasks that exist alone."""
    for name, preset in get_family(family).presets().items():
        known = {*TASKS, *(f"{PREFIX}{task}" for task in GLUE)}
        assert preset.get("tasks", {}).keys() <= known
        for task in TASKS:
            finetune_config(settings(family, task, preset=name), {})
