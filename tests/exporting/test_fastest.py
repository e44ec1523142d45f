"""The fastest backend that was measured is the one that ``--backend auto`` opens."""

import json
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.exporting.conftest import Exported
from tests.inference.making import make_checkpoint
from tests.once import shared
from tests.warm import zoo
from zoo.cli.installation.doctor import command as doctor
from zoo.exporting.cache import cached_graph
from zoo.exporting.fastest import fastest_backend, save_measurements, save_speeds
from zoo.exporting.session import open_session
from zoo.inference.bench import Measurement
from zoo.plugins import get_family


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, but for the cache of graphs, which the tests of one model share."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "onnx").symlink_to(shared("fastest-onnx"), target_is_directory=True)
    monkeypatch.setenv("ZOO_HOME", str(home))
    return home


@pytest.mark.long
def test_the_command_keeps_the_fastest(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"), num_layers=1)
    assert fastest_backend(checkpoint) is None
    words = ("--iterations", "2", "--batch-size", "2", "--no-startup", "--json")
    done = zoo("bench", str(tmp_path / "model"), *words)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    fastest = max(results, key=lambda entry: entry["tokens_per_second"])["backend"]
    assert fastest_backend(checkpoint) == fastest
    assert open_session(checkpoint, fastest=True).backend == fastest
    assert fastest_backend(checkpoint, threads=7) is None  # another number of threads


def test_what_leaves_no_choice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"), num_layers=1)
    assert save_speeds(checkpoint, None, {"cpu": 1.0, "onnx": 2.0}) == "onnx"
    assert open_session(checkpoint, dtype="float64", fastest=True).backend == "cpu"
    assert open_session(checkpoint, device="cpu", fastest=True).backend == "cpu"
    assert open_session(checkpoint, "cpu", fastest=True).backend == "cpu"
    with caplog.at_level("INFO", "zoo"):
        assert open_session(checkpoint, fastest=True).backend == "onnx"
    assert "backend: onnx, the fastest of zoo bench" in caplog.text


def test_every_dtype_has_a_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"), num_layers=1)

    def measured(backend: str, dtype: str, seconds: float) -> Measurement:
        return Measurement(backend, "cpu", dtype, (seconds,), (seconds,), 9, 8, 0.0)

    int8 = ("int8", measured("cpu", "int8", 2)), ("int8", measured("onnx", "int8", 1))
    alone = ("float64", measured("cpu", "float64", 1))
    assert save_measurements(checkpoint, None, [*int8, alone]) == {"int8": "onnx"}
    assert fastest_backend(checkpoint, dtype="int8") == "onnx"
    assert fastest_backend(checkpoint) is None is fastest_backend(checkpoint, dtype="float64")
    default = (None, measured("cpu", "float32", 1)), (None, measured("onnx", "float32", 2))
    assert save_measurements(checkpoint, None, default) == {"float32": "cpu"}
    assert fastest_backend(checkpoint) == "cpu" == fastest_backend(checkpoint, dtype="float32")
    with caplog.at_level("INFO", "zoo"):
        assert open_session(checkpoint, dtype="fp32", fastest=True).dtype == "float32"
    assert "backend: cpu, the fastest of zoo bench on this machine in float32" in caplog.text


def test_a_search_with_other_settings_is_not_chosen(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", "causal-lm", family=get_family("gpt"))

    def measured(backend: str, seconds: float) -> tuple[None, Measurement]:
        times = (seconds,) * 3
        return None, Measurement(backend, "cpu", "float32", times, times, 9, 4, 0.0)

    sides = [measured("cpu", 2), measured("onnx", 3), measured("ctranslate2", 1)]
    assert save_measurements(checkpoint, None, sides) == {"float32": "cpu"}
    assert save_measurements(checkpoint, None, [sides[0], sides[2]]) == {}


def test_an_export_is_measured_in_all_its_dtypes(int8_encoder: Exported) -> None:
    words = ("--iterations", "1", "--batch-size", "2", "--no-startup", "--json")
    done = zoo("bench", int8_encoder[1].path, *words)
    assert done.returncode == 0, done.stderr
    results = [(entry["backend"], entry["dtype"]) for entry in json.loads(done.stdout)["results"]]
    assert results == [("onnx", "float32"), ("onnx", "int8")]


def test_another_model_and_a_damaged_record(tmp_path: Path, empty_home: Path) -> None:
    family = get_family("bert")
    checkpoint = make_checkpoint(tmp_path / "one", family=family)
    save_speeds(checkpoint, None, {"cpu": 1.0, "onnx": 2.0})
    assert fastest_backend(make_checkpoint(tmp_path / "other", family=family, num_layers=1)) is None
    (record,) = (empty_home / "backends").iterdir()
    for content in (b"", b"{}", b'{"tokens_per_second": {}}', b'{"tokens_per_second": {"x": 1}}'):
        record.write_bytes(content)
        assert fastest_backend(checkpoint) is None


def test_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home may be shared by machines, and each is measured by itself."""
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"), num_layers=1)
    save_speeds(checkpoint, None, {"cpu": 1.0, "onnx": 2.0})
    with monkeypatch.context() as patch:
        patch.setattr("zoo.exporting.fastest._processor", lambda: "another CPU")
        assert fastest_backend(checkpoint) is None
        save_speeds(checkpoint, None, {"cpu": 2.0, "onnx": 1.0})
        assert fastest_backend(checkpoint) == "cpu"
    assert fastest_backend(checkpoint) == "onnx"
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(cores) > 1:  # as many threads as cores, unless their number is given
        save_speeds(checkpoint, len(cores), {"cpu": 1.0, "onnx": 2.0})
        os.sched_setaffinity(0, {min(cores)})
        try:
            assert fastest_backend(checkpoint) is None
            assert fastest_backend(checkpoint, threads=len(cores)) == "onnx"
        finally:
            os.sched_setaffinity(0, cores)


def versions(onnxruntime: dict[str, str]) -> Callable[[str], str]:
    """Return a function of versions in an environment with some distributions of ONNX Runtime."""
    read = metadata.version

    def version(name: str) -> str:
        if name.startswith("onnxruntime") and name not in onnxruntime:
            raise metadata.PackageNotFoundError(name)
        return onnxruntime.get(name) or read(name)

    return version


def test_distributions_of_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"), num_layers=1)
    save_speeds(checkpoint, None, {"cpu": 1.0, "onnx": 2.0})
    monkeypatch.setattr(metadata, "version", versions({}))
    assert fastest_backend(checkpoint) is None
    monkeypatch.setattr(metadata, "version", versions({"onnxruntime-gpu": "1.30"}))
    assert fastest_backend(checkpoint) is None
    save_speeds(checkpoint, None, {"cpu": 1.0, "onnx": 2.0})
    monkeypatch.setattr(metadata, "version", versions({"onnxruntime-gpu": "1.31"}))
    assert fastest_backend(checkpoint) is None
    export = cached_graph(checkpoint).manifest.export
    assert export is not None and export["versions"]["onnxruntime"] == "1.31"
    report = CliRunner().invoke(doctor, ["--json"], catch_exceptions=False)
    assert json.loads(report.stdout)["packages"]["onnxruntime"] == "1.31"


def test_a_runtime_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node.js finds llama.cpp in a folder, so that no list of packages has its version."""
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"), num_layers=1)
    package = tmp_path / "packages" / "node-llama-cpp"
    (package / "dist").mkdir(parents=True)
    (package / "dist" / "index.js").touch()
    described = package / "package.json"
    described.write_text('{"version": "3.1.0"}')
    monkeypatch.setenv("NODE_PATH", str(package.parent))
    monkeypatch.setattr("zoo.exporting.targets.gguf.llama.shutil.which", lambda name: name)
    monkeypatch.setattr("zoo.exporting.targets.gguf.llama._global_folder", lambda: None)
    save_speeds(checkpoint, None, {"cpu": 1.0, "onnx": 2.0, "gguf": 3.0})
    assert fastest_backend(checkpoint) == "gguf"
    described.write_text('{"version": "3.2.0"}')
    assert fastest_backend(checkpoint) is None
    described.write_text('{"version": "3.1.0"}')
    monkeypatch.setenv("NODE_PATH", "")  # as in another folder: what is left was measured
    assert fastest_backend(checkpoint) == "onnx"
