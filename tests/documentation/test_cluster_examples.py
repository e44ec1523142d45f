"""The files of examples/cluster are valid, and give `zoo` and `torchrun` options that they have."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from torch.distributed.run import get_args_parser

from tests.interfaces import ROOT
from zoo.cli import cli
from zoo.io.signals import STOP_SIGNALS

FOLDER = ROOT / "examples" / "cluster"
SCRIPT = FOLDER / "train.sbatch"
JOB = FOLDER / "job.yaml"
KINDS = ["Service", "Job"]


def document(kind: str) -> Any:
    documents = list(yaml.safe_load_all(JOB.read_text("utf-8")))
    assert [item["kind"] for item in documents] == KINDS
    return documents[KINDS.index(kind)]


@pytest.fixture
def container() -> Any:
    """The container of the Job."""
    (only_container,) = document("Job")["spec"]["template"]["spec"]["containers"]
    return only_container


def launched(words: list[str]) -> tuple[Any, dict[str, Any]]:
    """Return the options of torchrun, and the parameters of the command of zoo that it starts."""
    launcher = get_args_parser().parse_args(words)
    assert launcher.module and launcher.training_script == "zoo"
    name, *arguments = launcher.training_script_args
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return launcher, command.make_context(name, arguments).params


def shell_words() -> list[str]:
    """Return the arguments of torchrun in the script, with the example of its first lines."""
    text = SCRIPT.read_text("utf-8")
    (example,) = re.findall(r"^# +sbatch \S+ (.*)$", text, re.MULTILINE)
    (command,) = re.findall(r"^srun torchrun (.*?) &$", text, re.MULTILINE | re.DOTALL)
    values = {'"$SLURM_NNODES"': "4", '"${SLURM_GPUS_ON_NODE:-1}"': "8", '"$@"': example}
    for name, value in values.items():
        assert name in command
        command = command.replace(name, value)
    return shlex.split(command.replace("\\\n", " "))


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_follows_the_schema(kind: str) -> None:
    assert kubernetes_validate.validate(document(kind), "1.34", strict=True) == "1.34"


def test_a_pod_per_machine_finds_the_first_one(container: Any) -> None:
    job = document("Job")
    launcher, parameters = launched(container["args"])
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert int(launcher.nnodes) == spec["parallelism"] == spec["completions"]
    assert launcher.nproc_per_node == container["resources"]["limits"]["nvidia.com/gpu"]
    service = document("Service")
    name, port = launcher.rdzv_endpoint.split(":")
    assert name == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == spec["template"]["metadata"]["labels"]
    assert [int(port)] == [item["port"] for item in service["spec"]["ports"]]
    assert parameters["auto_resume"]
    folders = [parameters["output"], *map(Path, parameters["train"])]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert [f for f in folders if not any(f.is_relative_to(mount) for mount in mounts)] == []
    volumes = [volume["name"] for volume in spec["template"]["spec"]["volumes"]]
    assert volumes == [mount["name"] for mount in container["volumeMounts"]]


def test_a_checkpoint_fits_into_the_time_that_pods_have(container: Any) -> None:
    launcher, _ = launched(container["args"])
    assert launcher.shutdown_timeout < document("Job")["spec"]["template"]["spec"].get(
        "terminationGracePeriodSeconds"
    )


def test_the_script_is_valid_and_resumes() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    launcher, parameters = launched(shell_words())
    assert launcher.rdzv_backend == "c10d" and launcher.max_restarts > 0
    assert parameters["auto_resume"] and parameters["output"] is not None


def test_signals_reach_the_processes_in_time() -> None:
    text = SCRIPT.read_text("utf-8")
    (name, seconds), *_ = re.findall(r"^#SBATCH --signal=B:(\w+)@(\d+)$", text, re.MULTILINE)
    launcher, _ = launched(shell_words())
    names = launcher.signals_to_handle.split(",")
    assert f"SIG{name}" in names and f"scancel --signal={name}" in text
    assert {number.name for number in STOP_SIGNALS} >= set(names)
    assert launcher.shutdown_timeout < int(seconds)
