"""The depth of a training step below the command."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest

import zoo
from tests.in_process import exit_code
from tests.training.runs import DATA
from zoo.objectives.base import Batch
from zoo.training.trainer import Trainer

PACKAGE = str(Path(zoo.__file__).parent)
SETTINGS = ("vocab_size=300", "seq_len=32", "global_batch_tokens=64", "eval_sequences=1")


def test_a_step_is_nine_functions_below_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows a step from the command on reads at most nine of our functions."""
    chains = []
    train_step = Trainer.train_step

    def traced(trainer: Trainer, batches: Sequence[Batch]) -> dict[str, float]:
        chain = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                chain.append(frame.f_code.co_qualname)
            frame = frame.f_back
        chains.append([*reversed(chain), train_step.__qualname__])
        return train_step(trainer, batches)

    monkeypatch.setattr(Trainer, "train_step", traced)
    command = ["pretrain", "bert", "--max-steps", "1", "--device", "cpu", *DATA]
    for setting in SETTINGS:
        command += ["--set", setting]
    assert exit_code([*command, "-o", str(tmp_path / "run")]) == 0
    (chain,) = chains
    assert chain[0] == "main" and len(chain) <= 9, chain
