"""Distributed runs with initial weights and sequence-length warm-up equal runs of one process."""

import shutil
from pathlib import Path

import pytest

from tests.training.cases import dry
from tests.training.making import torchrun
from tests.training.runs import cut, finish, options, records, run_training, small
from zoo.training.state.progress import list_checkpoints

pytestmark = pytest.mark.usefixtures("shared_home")
SHORT = {
    "max_steps": 6,
    "save_steps": 1,
    "save_total_limit": 9,
    "seq_len_warmup": {"seq_len": 32, "fraction": 0.5, "keep": "rows"},
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("shard", "left"),
    [
        pytest.param(False, 0, id="copied"),
        pytest.param(True, 2, id="split", marks=pytest.mark.long),
    ],
)
def test_two_processes_begin_with_a_model_as_one_does(
    tmp_path: Path, shard: bool, left: int
) -> None:
    """Includes resumption from step 0, and over the switch to longer rows."""
    model = run_training(tmp_path / "first", "bert", max_steps=1) / "model"
    changes = {**SHORT, "config": dry(small("bert")).config, "fsdp": shard}
    arguments = ["bert", "--init-from", str(model), *options(**changes)]
    alone, run = tmp_path / "alone", tmp_path / "run"
    done = finish(*arguments, "-o", str(alone))
    assert done.returncode == 0, done.stderr
    program = ["-m", "zoo", "pretrain", "--device", "cpu"]
    torchrun(*program, *arguments, "-o", str(run))
    expected = [record["loss"] for record in records(alone)]
    assert [record["loss"] for record in records(run)] == pytest.approx(expected, abs=1e-5)
    shutil.rmtree(tmp_path / "first")
    cut(run, left)
    assert list(list_checkpoints(run)) == list(range(left + 1))
    torchrun(*program, "--resume", str(run))
    assert [record["loss"] for record in records(run)] == pytest.approx(expected, abs=1e-5)
