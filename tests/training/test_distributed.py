"""Runs of two processes equal runs of one, and a run resumes with another world size."""

import json
from pathlib import Path

import pytest

from tests import warm
from tests.training.cases import cases
from tests.training.distributed_program import losses
from tests.training.making import HERE, TORCHRUN, torchrun
from tests.training.runs import finish, options, records
from zoo.training.state.progress import list_checkpoints

pytestmark = pytest.mark.usefixtures("shared_home")
TORCHRUN += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]  # on any free port


FEW = ["electra:replaced-token-detection"]  # two models
EVERY = [f"{family}:{objective}" for family, objective in sorted(cases())]


@pytest.mark.parametrize("names", [FEW, pytest.param(EVERY, marks=pytest.mark.long)])
def test_two_processes_have_the_losses_of_one(tmp_path: Path, names: list[str]) -> None:
    """All objectives in one launch with replicated parameters, and one per family with FSDP."""
    split = {name.split(":")[0]: f"{name}:shard" for name in names}
    alone = {name: losses(name, HERE) for name in names}
    output = tmp_path / "losses.json"
    program = "tests.training.distributed_program"
    done = warm.in_processes(2, output, *names, *split.values(), module=program)
    assert done.returncode == 0, done.stderr
    for name, values in json.loads(output.read_text()).items():
        assert values == pytest.approx(alone[name.removesuffix(":shard")], abs=1e-5), name


@pytest.mark.long
@pytest.mark.parametrize(
    "shard",
    [pytest.param(False, id="copied", marks=pytest.mark.long), pytest.param(True, id="split")],
)
def test_one_process_resumes_a_run_of_two(tmp_path: Path, shard: bool) -> None:
    dropout = {"config": {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}}
    arguments = ["gpt", *options(max_steps=6, **dropout), *(["--fsdp"] if shard else [])]
    alone, run = tmp_path / "alone", tmp_path / "run"
    assert finish(*arguments, "-o", str(alone)).returncode == 0
    torchrun("-m", "zoo", "pretrain", "--device", "cpu", *arguments, "-o", str(run))
    assert (run / "model" / "model.safetensors").is_file()
    last = list(list_checkpoints(run).values())[-1]
    assert (last / "shards").is_dir() == shard
    assert not list(run.rglob("*.metadata")), "torch's own storage would be a pickle"
    for path in sorted(last.rglob("*"), reverse=True):  # undo the last three steps
        path.unlink() if path.is_file() else path.rmdir()
    last.rmdir()
    done = finish("--resume", str(run))
    assert done.returncode == 0, done.stderr
    expected = [record["loss"] for record in records(alone)]
    assert [record["loss"] for record in records(run)] == pytest.approx(expected, abs=1e-5)
