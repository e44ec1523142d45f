"""Slurm on this machine: a controller and one node, for tests."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "sinfo")
PARTITION = "cpu"
SECONDS = 60  # until the node is ready
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
MailProg=/bin/true
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=8000 State=UNKNOWN
PartitionName={partition} Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The partition of a Slurm of one node, which ``$SLURM_CONF`` names."""
    search_path = f"{os.environ['PATH']}:/usr/sbin"
    for program in PROGRAMS:
        if shutil.which(program, path=search_path) is None:
            pytest.skip(f"Slurm is not installed: there is no {program}")
    if os.geteuid() != 0:
        pytest.skip("a node of Slurm starts as root")
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    text = CONFIGURATION.format(
        host=socket.gethostname(),
        folder=folder,
        controller_port=_free_port(),
        node_port=_free_port(),
        partition=PARTITION,
    )
    (folder / "slurm.conf").write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    processes = []
    try:
        for program in ("slurmctld", "slurmd"):
            path = shutil.which(program, path=search_path)
            assert path is not None, "it was found before"
            with (folder / f"{program}.out").open("w") as log:
                processes.append(subprocess.Popen([path, "-D"], stdout=log, stderr=log))
        _wait_until_ready(folder)
        yield PARTITION
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def _wait_until_ready(folder: Path) -> None:
    for _ in range(SECONDS * 2):
        states = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False
        )
        if states.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    logs = "".join(path.read_text()[-500:] for path in folder.glob("*.out"))
    pytest.skip(f"Slurm does not start here: {states.stderr}{logs}")
