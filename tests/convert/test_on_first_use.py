"""A model is converted when it is first used: once, and safely by several at the same time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import Make
from zoo import paths
from zoo.references import resolve_checkpoint


def test_a_directory_is_converted_once(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    first = resolve_checkpoint(str(source))
    when = (first.path / "zoo.json").stat().st_mtime_ns
    again = resolve_checkpoint(str(source))
    assert again.path == first.path
    assert (again.path / "zoo.json").stat().st_mtime_ns == when
    assert first.path.is_relative_to(tmp_path / "zoo-home" / "cache")


def test_a_directory_that_changed_is_converted_again(hub_checkpoint: Make) -> None:
    source = hub_checkpoint()
    first = resolve_checkpoint(str(source))
    os.utime(source / "model.safetensors", (1, 1))
    assert resolve_checkpoint(str(source)).path != first.path


def test_another_head_has_a_place_of_its_own(hub_checkpoint: Make) -> None:
    source = str(hub_checkpoint())
    assert resolve_checkpoint(source).head_name == "pretraining"
    assert resolve_checkpoint(source, head="none").head_name == "none"
    assert resolve_checkpoint(source).head_name == "pretraining"


def test_those_used_last_are_kept(
    hub_checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "KEPT", 2)
    one, two, three = (str(hub_checkpoint("BertModel", name)) for name in ("one", "two", "three"))
    folder = tmp_path / "zoo-home" / "cache"
    unfinished = folder / ".four.x"
    unfinished.mkdir(parents=True)
    used = [resolve_checkpoint(source).path for source in (one, two, one, three)]
    assert used[0] == used[2]
    assert sorted(folder.iterdir()) == sorted([unfinished, used[0], used[3]])
    assert resolve_checkpoint(two).path == used[1]
    assert sorted(folder.iterdir()) == sorted([unfinished, used[1], used[3]])


def test_a_mistake_is_said_before_anything_is_begun(hub_checkpoint: Make, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zoo", "export", str(hub_checkpoint()), "--onnx"]
    command += ["-o", "out", "--head", "masked-ln"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: bert has no head 'masked-ln'; did you mean masked-lm?\n"
    assert done.stdout == ""


@pytest.mark.parametrize("count", [3])
def test_several_at_once(hub_checkpoint: Make, tmp_path: Path, count: int) -> None:
    source = hub_checkpoint()
    command = [sys.executable, "-m", "zoo", "run", "fill-mask", str(source), "a [MASK]"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    answers = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * count, answers
    assert len({out for out, _ in answers}) == 1
    assert len(list((tmp_path / "zoo-home" / "cache").iterdir())) == 1
