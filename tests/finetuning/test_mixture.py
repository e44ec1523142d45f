"""Fine-tuning on several tables with weights: shares, losses of each, a resume, and bad input."""

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.finetuning.making import finetune, labelled, settings
from tests.finetuning.test_every_task import TASKS, table_of
from tests.training.runs import assert_resumes_from, records
from zoo.cli.training.finetune import command
from zoo.data.readers.text_io import split_name
from zoo.errors import UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext

HERE = DistContext(0, 1, torch.device("cpu"))
# Losses of these compare several texts.
WITHOUT_ROW_SUMS = (
    "setfit",
    "sentence-embedding",
    "sparse-embedding",
    "late-interaction",
    "reranker",
)
WEIGHTS = {"first": 0.25, "second": 0.75}


def tree(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the settings of a run on tables of 60 and of 15 rows, and of 20 to evaluate."""
    data = {
        "train": [
            f"first={labelled(folder / 'a.jsonl', 60)}",
            f"second={labelled(folder / 'b.jsonl', 15, seed=1)}",
        ],
        "eval": [
            f"first={labelled(folder / 'c.jsonl', 12, seed=2)}",
            f"second={labelled(folder / 'd.jsonl', 8, seed=3)}",
        ],
        "weights": WEIGHTS,
    }
    values = settings("bert", folder / "a.jsonl", micro_batch_size=None, save_steps=4)
    values["data"] = data
    return deep_merge(values, changes)


def make_setup(values: dict[str, Any]) -> FineTuneSetup:
    config = FineTuneRun.build_config(values, {})
    assert isinstance(config, FineTuneConfig)
    return finetune_setup(config)


def test_rows_have_exact_shares(tmp_path: Path) -> None:
    """Of a step of eight rows, two are of the first table; each is read through, then again."""
    setup = make_setup(tree(tmp_path))
    loader = setup.train_dataloader(HERE)
    rows: dict[str, list[int]] = {"first": [], "second": []}
    for step in range(30):
        batches = loader.make_batches(step)
        counts = {name: sum(batch.sources[name].rows for batch in batches) for name in WEIGHTS}
        assert counts == {"first": 2, "second": 6}
        for place in range(8):
            index = loader.index(step, place)
            rows["first" if index < 60 else "second"].append(index)
    loader.close()
    assert sorted(rows["first"]) == list(range(60))
    for epoch in range(12):
        assert sorted(rows["second"][15 * epoch : 15 * (epoch + 1)]) == list(range(60, 75))
    assert rows["second"][:15] != rows["second"][15:30]


@pytest.mark.parametrize(
    ("temperature", "limit", "ratio"),
    [(1.0, None, 60 / 15), (2.0, None, (60 / 15) ** 0.5), (2.0, 30, 2**0.5), (1.0, 15, 1.0)],
)
def test_a_temperature_decides_shares(
    temperature: float, limit: int | None, ratio: float, tmp_path: Path
) -> None:
    """Rates are proportional to min(e, K) ** (1 / T) of 60 and of 15 rows (Raffel et al. 2020)."""
    values = tree(tmp_path)
    del values["data"]["weights"]
    values["data"] |= {"temperature": temperature, "mixing_limit": limit}
    setup = make_setup(values)
    assert setup.mixture is not None
    share = ratio / (1 + ratio)
    assert setup.mixture.shares["first"] == pytest.approx(share, abs=1e-4)
    assert setup.data["weights"] == setup.mixture.shares
    loader = setup.train_dataloader(HERE)
    indices = [loader.index(step, place) for step in range(30) for place in range(8)]
    loader.close()
    assert abs(sum(index < 60 for index in indices) - 240 * share) <= 1


def test_losses_of_each_table(tmp_path: Path) -> None:
    """The loss of the evaluation is the mean over all rows, and a resumed run ends alike."""
    run = finetune(tmp_path / "run", tree(tmp_path))
    for record in records(run):
        parts = record["sources"]
        assert {name: part["share"] for name, part in parts.items()} == WEIGHTS
        mean = sum(WEIGHTS[name] * part["loss"] for name, part in parts.items())
        assert record["loss"] == pytest.approx(mean, rel=1e-6)
    for record in records(run, "validation"):
        first, second = (record["sources"][name] for name in WEIGHTS)
        assert record["loss"] == pytest.approx((12 * first["loss"] + 8 * second["loss"]) / 20)
    assert_resumes_from(run, tmp_path, 8, kind=FineTuneRun)


@pytest.mark.by_default("text-classification", "question-answering", "causal-lm")
@pytest.mark.parametrize("task", [name for name in TASKS if name not in WITHOUT_ROW_SUMS])
def test_the_losses_of_rows_are_those_of_rows_read_alone(task: str, tmp_path: Path) -> None:
    row, columns, family, changes = TASKS[task]
    table = table_of(row, tmp_path)
    data = {"train": [f"a={table}"], "weights": {"a": 1.0}, **columns}
    values = settings(family, table, task=task, micro_batch_size=None, vocab_size=60)
    setup = make_setup({**values, **changes, "data": data})
    objective = setup.objective
    torch.manual_seed(0)
    model = objective.model(setup.family, setup.model_config).eval()
    loader = setup.train_dataloader(HERE)
    batch = loader.make_batch(0, range(4))
    row_sums = objective.loss(objective.forward(model, batch.tensors), batch.tensors).row_sums
    assert set(row_sums) == {objective.context.name}
    for place in range(4):
        single = loader.make_batch(0, [place])
        loss = objective.loss(objective.forward(model, single.tensors), single.tensors)
        expected = loss.sums[objective.context.name].item()
        assert row_sums[objective.context.name][place].item() == pytest.approx(expected, abs=2e-5)
    loader.close()


def test_names_need_no_weights(tmp_path: Path) -> None:
    """A name without a weight is left out; a pattern with ``=`` is no name where files match."""
    (tmp_path / "lang=en").mkdir()
    table = labelled(tmp_path / "lang=en" / "a.jsonl", 12)
    values = settings("bert", table, micro_batch_size=None)
    expected = len(make_setup(values).train_rows)
    for path in (f"films={table}", str(tmp_path / "lang=en" / "*.jsonl")):
        values["data"]["train"] = [path]
        assert len(make_setup(values).train_rows) == expected
    assert split_name(f"lang=en/*.{tmp_path.name}") == ("lang", f"en/*.{tmp_path.name}")


def test_a_temperature_needs_names_and_excludes_weights(tmp_path: Path) -> None:
    values = tree(tmp_path, data={"temperature": 2.0})
    with pytest.raises(UsageError, match="temperature and weights both decide the shares"):
        make_setup(values)
    del values["data"]["weights"]
    values["data"]["train"] = [str(tmp_path / "a.jsonl")]
    with pytest.raises(UsageError, match="a temperature mixes sources; --train NAME="):
        make_setup(values)
    values["data"]["temperature"] = 0.0
    with pytest.raises(UsageError, match=r"temperature is 0\.0"):
        make_setup(values)


BAD_INPUT = {
    "sum": ({"first": 0.5, "second": 0.4}, "add up to 0.9, and not to 1"),
    "unknown": ({"first": 0.5, "third": 0.5}, "there is no source third"),
    "missing": ({"first": 1.0}, "first has a weight, and second has none"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_weights_are_one_line(name: str, tmp_path: Path) -> None:
    weights, message = BAD_INPUT[name]
    values = tree(tmp_path)
    values["data"]["weights"] = weights
    with pytest.raises(UsageError, match=message):
        make_setup(values)


def test_options_of_the_command_line(tmp_path: Path) -> None:
    words = [
        "bert",
        "--task",
        "text-classification",
        "--weight",
        "a=1",
        "-o",
        str(tmp_path / "run"),
    ]
    table = labelled(tmp_path / "t.jsonl")
    done = CliRunner().invoke(command, [*words, "--train", str(table)])
    assert isinstance(done.exception, UsageError)
    assert done.exception.what == f"{table} has no name, and there are weights"
    done = CliRunner().invoke(command, [*words, "--train", f"a={table}", "--max-steps", "1"])
    assert done.exception is None, done.output
    (record,) = records(tmp_path / "run")
    assert record["sources"]["a"]["share"] == 1.0
    assert record["sources"]["a"]["loss"] == pytest.approx(record["loss"])
