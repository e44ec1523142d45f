"""The cache of graphs that are exported on first use."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import zoo
from tests.disks import read_only, small_disk
from tests.inference.making import make_checkpoint
from tests.plugins.laying import find_again, lay_out
from zoo.errors import UsageError, VerificationError
from zoo.exporting.cache import _key, cached_graph
from zoo.exporting.fastest import fastest_backend, save_speeds
from zoo.exporting.quantization import plan
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.plugins import get_family, loading

__all__ = ["small_disk"]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that installs a version of the family ``mine``, with a list of files."""
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    site = lay_out(tmp_path / "site", {})
    monkeypatch.syspath_prepend(site)

    def install(version: str, record: str) -> None:
        (info,) = site.glob("*.dist-info")
        info = info.rename(site / f"zoo_mine-{version}.dist-info")
        metadata = ("Metadata-Version: 2.1", "Name: zoo-mine", f"Version: {version}", "")
        (info / "METADATA").write_text("\n".join(metadata))
        (info / "RECORD").write_text(record)
        find_again()

    yield install
    loading.manager().unregister(name="mine")
    sys.modules.pop("zoo_mine")
    find_again()


def accepting(loss: float) -> type[QuantizationPlan]:
    """Return the plan of quantized copies with another default of the accepted loss."""

    @dataclass(frozen=True)
    class Plan(QuantizationPlan):
        max_drop: float = loss

    return Plan


def test_a_changed_plugin_has_graphs_and_speeds_of_its_own(
    tmp_path: Path, install: Callable[..., None]
) -> None:
    install("1.2", "zoo_mine/__init__.py,sha256=a,9\n")
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("mine"), num_layers=1)
    keys = {_key(checkpoint, None)}
    for version, record in (("1.2", "zoo_mine/__init__.py,sha256=b,9\n"), ("1.3", "")):
        save_speeds(checkpoint, None, {"cpu": 1.0, "onnx": 2.0})
        assert fastest_backend(checkpoint) == "onnx"
        install(version, record)
        assert fastest_backend(checkpoint) is None
        keys.add(_key(checkpoint, None))
    assert len(keys) == 3 and _key(checkpoint, None) in keys


@pytest.mark.long
def test_copies_that_lose_too_much_name_the_command_that_accepts_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(plan, "QuantizationPlan", accepting(0.0))
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    with pytest.raises(VerificationError) as caught:
        cached_graph(checkpoint, "int8")
    assert "quantizing all layers to int8" in caught.value.what
    assert f"`zoo export {checkpoint.path} --onnx --int8 --max-drop X" in caught.value.hint


@pytest.mark.long
def test_int4_is_exported_without_a_choice_of_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(plan, "QuantizationPlan", accepting(0.9))
    folder = tmp_path / "model"
    make_checkpoint(folder, "causal-lm", family=get_family("gpt"), num_layers=1, hidden_size=32)
    model = zoo.load(folder, dtype="int4", threads=1)
    assert (model.session.backend, model.session.dtype) == ("onnx", "int4")
    with pytest.raises(UsageError, match="torch does not compute in int4"):
        zoo.load(folder, backend="cpu", dtype="int4")


def test_a_kept_graph_of_a_read_only_home_is_used(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(small_disk))
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    kept = cached_graph(checkpoint)
    read_only(small_disk)
    assert cached_graph(checkpoint).path == kept.path
    with pytest.raises(UsageError, match="set ZOO_HOME to a folder you can write to"):
        cached_graph(checkpoint, "float16")
