"""Conversion on first use, by one process and by concurrent processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import Make
from zoo.conversion.cache import resolve_checkpoint
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo.io import cached_directories


def test_a_directory_is_converted_once(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    first = resolve_checkpoint(str(source))
    when = (first.path / "zoo.json").stat().st_mtime_ns
    again = resolve_checkpoint(str(source))
    assert again.path == first.path
    assert (again.path / "zoo.json").stat().st_mtime_ns == when
    assert first.path.is_relative_to(tmp_path / "zoo-home" / "cache")


def test_changed_weights_with_equal_size_and_mtime(hub_checkpoint: Make) -> None:
    source = hub_checkpoint()
    first = resolve_checkpoint(str(source))
    weights = source / "model.safetensors"
    before = weights.stat()
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = resolve_checkpoint(str(source))
    assert second.path != first.path
    stored = [(checkpoint.path / weights.name).read_bytes() for checkpoint in (first, second)]
    assert stored[0] != stored[1]


@pytest.mark.parametrize("folder", ["1_Pooling", "any-name"])
def test_a_file_in_a_folder_that_changed(hub_checkpoint: Make, folder: str) -> None:
    source = hub_checkpoint("BertModel")
    kinds = {"": "Transformer", folder: "Pooling"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kinds[path]}"} for path in kinds
    ]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "sentence_bert_config.json").write_text("{}")
    (source / folder).mkdir()
    for mode in ("mean_tokens", "cls_token"):
        (source / folder / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
        pooling = resolve_checkpoint(str(source)).model.pooling
        assert pooling is not None and pooling.mode == mode.removesuffix("_tokens").removesuffix(
            "_token"
        )


def test_unread_files_do_not_change_the_cache_key(hub_checkpoint: Make) -> None:
    source = hub_checkpoint()
    first = resolve_checkpoint(str(source))
    (source / "README.md").write_text("changed")
    os.utime(source / "model.safetensors", (1, 1))
    assert resolve_checkpoint(str(source)).path == first.path


def test_new_file_changes_the_cache_key(hub_checkpoint: Make) -> None:
    source = hub_checkpoint()
    first = resolve_checkpoint(str(source))
    (source / "tokenizer_config.json").write_text('{"model_max_length": 17}')
    second = resolve_checkpoint(str(source))
    assert second.path != first.path
    assert second.model.tokenizer is not None and second.model.tokenizer.max_tokens == 17


def test_another_head_of_a_model_in_the_store_follows_it(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    stored = tmp_path / "zoo-home" / "models" / "mine"
    paths = []
    for name in ("one", "two"):
        architecture = "BertForMaskedLM" if name == "one" else "BertForPreTraining"
        convert(CheckpointDir(hub_checkpoint(architecture, name), name), stored)
        paths.append(resolve_checkpoint("mine", head="none").path)
        shutil.rmtree(stored)
    contents = [(path / "model.safetensors").read_bytes() for path in paths]
    assert contents[0] != contents[1]


def test_other_heads_are_cached_separately(hub_checkpoint: Make) -> None:
    source = str(hub_checkpoint())
    assert resolve_checkpoint(source).head_name == "pretraining"
    assert resolve_checkpoint(source, head="none").head_name == "none"
    assert resolve_checkpoint(source).head_name == "pretraining"


def test_least_recently_used_are_evicted(
    hub_checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_directories, "MAX_CACHED", 2)
    first, two, three = (str(hub_checkpoint("BertModel", name)) for name in ("one", "two", "three"))
    folder = tmp_path / "zoo-home" / "cache"
    unfinished = folder / ".four.x"
    unfinished.mkdir(parents=True)
    used = [resolve_checkpoint(source).path for source in (first, two, first, three)]
    assert used[0] == used[2]
    assert sorted(folder.iterdir()) == sorted([unfinished, used[0], used[3]])
    assert resolve_checkpoint(two).path == used[1]
    assert sorted(folder.iterdir()) == sorted([unfinished, used[1], used[3]])


def test_usage_error_is_raised_before_conversion(hub_checkpoint: Make, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zoo", "export", str(hub_checkpoint()), "--onnx"]
    command += ["-o", "out", "--head", "masked-ln"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: bert has no head 'masked-ln'; did you mean masked-lm?\n"
    assert done.stdout == ""


@pytest.mark.long
@pytest.mark.parametrize("count", [3])
def test_concurrent_conversions(hub_checkpoint: Make, tmp_path: Path, count: int) -> None:
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
