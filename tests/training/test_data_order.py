"""The rows of a step: the same for any number of processes, and those that a run began with."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training import runs
from tests.training.runs import assert_resumes_from, run_training, small
from zoo.data.order import DataOrder
from zoo.training import setup as training_setup
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.setup import PretrainSetup, build_dataset, pretrain_setup
from zoo.training.state.run_manifest import MANIFEST, read_manifest

pytestmark = pytest.mark.usefixtures("shared_home")
ROWS = 4  # rows of a step


def rows_of_steps(setup: PretrainSetup, processes: int, first_step: int) -> list[list[int]]:
    """Return the rows of the steps of two epochs, from new loaders that begin with a step."""
    dataset = build_dataset(setup, "train", ROWS)
    loaders = [
        training_setup.train_dataloader(setup, DistContext(rank, processes, torch.device("cpu")))
        for rank in range(processes)
    ]
    rows = []
    for step in range(first_step, 2 * len(dataset) // ROWS):
        of_step = []
        for loader in loaders:
            for micro in loader.micro_batches:
                of_step += [loader.index(step, place) for place in micro]
        rows.append(of_step)
    for loader in loaders:
        loader.close()
    return rows


def test_every_step_has_its_rows_whatever_the_number_of_processes() -> None:
    """Also where a run is resumed with another number of them, in the second epoch."""
    setup = pretrain_setup(small("bert", objective="masked-lm", global_batch_tokens=256))
    expected = rows_of_steps(setup, 1, 0)
    count = len(build_dataset(setup, "train", ROWS))
    first_epoch = [row for step in expected for row in step][:count]
    assert sorted(first_epoch) == list(range(count))
    for processes, first_step in ((2, 0), (4, 0), (1, 37), (2, 37), (4, len(expected) - 3)):
        assert rows_of_steps(setup, processes, first_step) == expected[first_step:]


def test_batches_of_a_step_in_1_2_and_4_processes() -> None:
    """The examples of a step are equal, including their masks."""
    setup = pretrain_setup(small("bert", objective="masked-lm"))
    dataset = build_dataset(setup, "train", ROWS)

    def ids(processes: int) -> list[list[int]]:
        rows: list[list[int]] = []
        for rank in range(processes):
            loader = BatchLoader(
                setup.objective,
                dataset,
                seed=0,
                global_batch_size=ROWS,
                micro_batch_size=1,
                rank=rank,
                world_size=processes,
            )
            for batch in loader.make_batches(11):
                rows += batch.tensors["input_ids"].tolist()
            loader.close()
        return rows

    assert ids(1) == ids(2) == ids(4)


@pytest.fixture(scope="module")
def earlier_run(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    """A finished run with the order and the manifest of earlier versions."""
    earlier: DataOrder = "arrays"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        patch.setattr(training_setup, "DEFAULT_ORDER", earlier)
        path = tmp_path_factory.mktemp("earlier") / "run"
        run = run_training(path, "gpt", max_steps=8, save_steps=4, eval_steps=4)
    assert "data_order" not in json.loads((run / MANIFEST).read_bytes()), "they do not have it"
    return run


@pytest.mark.long
def test_an_earlier_run_is_resumed_with_its_order(earlier_run: Path, tmp_path: Path) -> None:
    """It ends as it would have; its rows are those of earlier versions (test_earlier_rows.py)."""
    assert_resumes_from(earlier_run, tmp_path, 4)


def test_a_run_that_continues_an_earlier_one_keeps_its_order(
    earlier_run: Path, tmp_path: Path
) -> None:
    output = tmp_path / "longer"
    run = PretrainRun({}, DistContext.initialize("cpu"), output, {"max_steps": 10})
    run.continue_from(earlier_run)
    assert read_manifest(output).data_order == "arrays"


def test_a_new_run_records_its_order_and_has_other_rows(earlier_run: Path, tmp_path: Path) -> None:
    run = run_training(tmp_path / "run", "gpt", max_steps=8, save_steps=4, eval_steps=4)
    assert read_manifest(run).data_order == "keyed"
    first: Any = [record["loss"] for record in runs.records(earlier_run)]
    second: Any = [record["loss"] for record in runs.records(run)]
    assert first != second
