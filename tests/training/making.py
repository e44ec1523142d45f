"""Processes of one run, started by torchrun."""

import subprocess
import sys

import torch

from zoo.training.distributed.context import DistContext

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
HERE = DistContext(0, 1, torch.device("cpu"))


def torchrun(*arguments: str) -> None:
    done = subprocess.run(
        [*TORCHRUN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
