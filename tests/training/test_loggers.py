"""Loggers that plugins provide by the hook ``zoo_loggers``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import records, run_training
from zoo.plugins.logger import Logger


class GradientNormLogger(Logger):
    """Logger that writes step and gradient norm to a file."""

    def __init__(self, run: Path, step: int) -> None:
        super().__init__(run, step)
        self.file = (run / "gradient_norm.txt").open("a")

    def log(self, record: Mapping[str, Any]) -> None:
        if record["split"] == "train":
            self.file.write(f"{record['step']} {json.dumps(record['gradient_norm'])}\n")

    def close(self) -> None:
        self.file.close()


@pytest.mark.usefixtures("shared_home")
def test_plugin_logger_writes_the_gradient_norm_of_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.training.callbacks.all_loggers", lambda: [GradientNormLogger])
    run = run_training(tmp_path / "run", "bert")
    lines = (run / "gradient_norm.txt").read_text().splitlines()
    assert lines == [f"{r['step']} {json.dumps(r['gradient_norm'])}" for r in records(run)]
    assert len(lines) == 12


@pytest.mark.usefixtures("shared_home")
def test_without_tensorboard_no_event_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with caplog.at_level("INFO", "zoo"):
        run = run_training(tmp_path / "run", "bert", max_steps=1)
    assert not list(run.glob("events.*"))
    assert "pip install 'plm-zoo[tensorboard]'" in caplog.text
