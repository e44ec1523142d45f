"""Loggers of runs, which the setting ``report_to`` selects by name."""

import importlib.util
import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.training.runs import options, records, run_training
from zoo.errors import UsageError
from zoo.training.logging.jsonl import PERFORMANCE_FILE, read_jsonl

GRADIENT_NORM = '''
import json
from zoo.plugins.hookspecs import hookimpl
from zoo.plugins.logger import Logger

class GradientNormLogger(Logger):
    """Writes step and gradient norm to a file."""

    name = "{logger}"

    def __init__(self, run, step):
        super().__init__(run, step)
        self.file = (run / "gradient_norm.txt").open("a")

    def log(self, record):
        if record["split"] == "train":
            self.file.write(f"{{record['step']}} {{json.dumps(record['gradient_norm'])}}\\n")

    def close(self):
        self.file.close()

@hookimpl
def zoo_loggers():
    return [GradientNormLogger]
'''


def install(site: Path, entry: str, module: str, source: str) -> None:
    """Lay out a distribution with one module, as pip does."""
    info = site / f"{module}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[zoo.api1]\n{entry} = {module}\n")
    (site / f"{module}.py").write_text(source)


def pretrain(
    run: Path, site: Path, *arguments: str, **environment: Any
) -> "subprocess.CompletedProcess[str]":
    """Train BERT for the steps of ``runs.SMALL`` in a process with plugins of a directory."""
    words = ("pretrain", "bert", "--device", "cpu", "-o", run, *options(), *arguments)
    return warm.zoo(*words, PYTHONPATH=str(site), **environment)


@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize("entry", ["gradient-norm", pytest.param("other", marks=pytest.mark.long)])
def test_plugin_logger_writes_the_gradient_norm_of_every_step(tmp_path: Path, entry: str) -> None:
    site, run = tmp_path / "site", tmp_path / "run"
    install(site, entry, "zoo_gradient_norm", GRADIENT_NORM.format(logger="gradient-norm"))
    # a plugin that is not needed is not imported if the entry point has the logger's name
    install(site, "unused", "zoo_unused", "open(__file__ + '.imported', 'w').close()\n")
    done = pretrain(run, site, "--report-to", "gradient-norm", "--report-to", "tensorboard")
    assert done.returncode == 0, done.stderr
    lines = (run / "gradient_norm.txt").read_text().splitlines()
    assert lines == [f"{r['step']} {json.dumps(r['gradient_norm'])}" for r in records(run)]
    assert len(lines) == 12
    assert len(list(run.glob("events.*"))) == 1
    assert (site / "zoo_unused.py.imported").exists() == (entry == "other")


@pytest.mark.long
@pytest.mark.usefixtures("shared_home")
def test_a_plugin_logger_that_is_not_selected_is_not_used(tmp_path: Path) -> None:
    site, run = tmp_path / "site", tmp_path / "run"
    install(site, "gradient-norm", "zoo_gradient_norm", "raise RuntimeError('imported')\n")
    done = pretrain(run, site, "--set", "report_to=[]")
    assert done.returncode == 0, done.stderr
    assert not list(run.glob("events.*"))
    assert "RuntimeError" not in done.stderr


@pytest.mark.usefixtures("shared_home")
def test_a_misspelt_logger_is_an_error_before_training(tmp_path: Path) -> None:
    site, run = tmp_path / "site", tmp_path / "run"
    install(site, "gradient-norm", "zoo_gradient_norm", GRADIENT_NORM.format(logger="grad-norm"))
    done = pretrain(run, site, "--report-to", "grad-nrom")
    assert done.returncode == 2
    assert done.stderr == "error: no logger is called 'grad-nrom'; did you mean grad-norm?\n"
    assert not run.exists()


@pytest.mark.usefixtures("shared_home")
def test_a_logger_that_fails_names_its_plugin(tmp_path: Path) -> None:
    site = tmp_path / "site"
    source = GRADIENT_NORM.format(logger="sad").replace('record["split"]', 'record["no_key"]')
    install(site, "sad", "zoo_sad", source)
    done = pretrain(tmp_path / "run", site, "--report-to", "sad")
    assert done.returncode == 5
    assert "plugin sad (from zoo-sad 1.2) is broken: KeyError: 'no_key'" in done.stderr


@pytest.mark.usefixtures("shared_home")
def test_without_tensorboard_no_event_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    packages, find_spec = ("tensorboard", "wandb", "mlflow"), importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, package=None: None if name in packages else find_spec(name, package),
    )
    with caplog.at_level("INFO", "zoo"):
        run = run_training(tmp_path / "run", "bert", max_steps=1)
    assert not list(run.glob("events.*"))
    assert "pip install tensorboard" in caplog.text
    for name in packages:
        with pytest.raises(UsageError, match=f"{name} needs the package {name}") as error:
            run_training(tmp_path / name, "bert", report_to=[name])
        assert (error.value.hint or "").startswith("pip install")


def expected_values(run: Path) -> dict[str, dict[int, float]]:
    """Return tag -> step -> value of some curves, from the JSON logs."""
    splits = {split: records(run, split) for split in ("train", "validation")}
    speed = read_jsonl(run, PERFORMANCE_FILE)
    return {
        "train/loss": {r["step"]: r["loss"] for r in splits["train"]},
        "train/gradient_norm": {r["step"]: r["gradient_norm"] for r in splits["train"]},
        "validation/loss": {r["step"]: r["loss"] for r in splits["validation"]},
        "speed/tokens_per_second": {r["step"]: r["tokens_per_second"] for r in speed},
    }


@pytest.mark.usefixtures("shared_home")
def test_mlflow_has_the_logged_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    run = run_training(tmp_path / "run", "bert", report_to=["mlflow"])
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("zoo")
    (logged,) = client.search_runs([experiment.experiment_id])
    assert (logged.info.run_name, logged.info.status) == ("run", "FINISHED")
    for tag, values in expected_values(run).items():
        history = client.get_metric_history(logged.info.run_id, tag)
        assert {point.step: point.value for point in history} == values, tag
    assert "train/loss.masked-lm" in logged.data.metrics


@pytest.mark.usefixtures("shared_home")
def test_mlflow_that_cannot_be_reached_is_a_source_error(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    uri = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = pretrain(tmp_path / "run", tmp_path, "--report-to", "mlflow", **uri)
    assert done.returncode == 4, done.stderr
    assert "check $MLFLOW_TRACKING_URI" in done.stderr


def wandb_records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a ``.wandb`` file: a LevelDB log after a header of seven bytes."""
    place, record = 7, b""
    while place < len(content):
        if (left := 32768 - place % 32768) < 7:  # padding at the end of a block
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


@pytest.mark.usefixtures("shared_home")
def test_wandb_has_the_logged_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    run = run_training(tmp_path / "run", "bert", report_to=["wandb"])
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    logged: dict[str, dict[int, float]] = {}
    for data in wandb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        items = {i.key or "/".join(i.nested_key): i.value_json for i in record.history.item}
        for tag, value in items.items():
            logged.setdefault(tag, {})[record.history.step.num] = json.loads(value)
    for tag, values in expected_values(run).items():
        assert logged[tag] == values, tag


@pytest.mark.usefixtures("shared_home")
def test_wandb_without_a_key_is_a_source_error(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    done = pretrain(tmp_path / "run", tmp_path, "--report-to", "wandb", HOME=str(tmp_path))
    assert done.returncode == 4, done.stderr
    assert "wandb login" in done.stderr
