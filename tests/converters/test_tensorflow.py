"""TensorFlow 1 checkpoints, compared with files of TensorFlow (see make_tensorflow.py)."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import UsageError, VerificationError, ZooError
from zoo.io.tensors.formats import TensorReader
from zoo_converters.tensorflow import TensorFlow

FOLDER = Path(__file__).parents[1] / "fixtures" / "tensorflow"
STEMS = ("bert_model.ckpt", "kinds.ckpt")


def names_of(folder: Path, stem: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(stem))


def opened(folder: Path, stem: str) -> TensorReader:
    format_ = TensorFlow()
    return format_.open(folder, format_.find(names_of(folder, stem)))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(FOLDER, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("stem", STEMS)
def test_tensors_match_tensorflow(stem: str) -> None:
    expected = np.load(FOLDER / "values.npz")
    with opened(FOLDER, stem) as reader:
        for name in reader.tensors:
            ours, theirs = reader.read(name), expected[name.replace("/", "|")]
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert ours.tobytes() == theirs.tobytes(), name
        assert len(reader.tensors) == {"bert_model.ckpt": 139, "kinds.ckpt": 7}[stem]


def test_files_are_found_by_name() -> None:
    find = TensorFlow().find
    first = ["m.ckpt.index", "m.ckpt.data-00000-of-00002", "m.ckpt.data-00001-of-00002"]
    assert find([*reversed(first), "vocab.txt", "m.ckpt.meta"]) == tuple(first)
    assert find(["m.ckpt.index"]) == ()
    assert find(first[1:]) == ()
    second = ["n.ckpt.index", "n.ckpt.data-00000-of-00001"]
    assert find([*reversed(second), *first]) == (*first, *second)
    assert find([*first, *second, "checkpoint"]) == ("checkpoint", *first, *second)
    assert find([*first, "checkpoint"]) == tuple(first)
    assert find(["model.safetensors.index.json"]) == ()


def several(folder: Path) -> TensorReader:
    return TensorFlow().open(folder, TensorFlow().find([path.name for path in folder.iterdir()]))


@pytest.mark.parametrize("before", ["", "/somewhere/else/"])
def test_state_file_selects_one_of_several(copy: Path, before: str) -> None:
    """TensorFlow writes the latest first, then all of them (``latest_checkpoint``)."""
    (copy / "checkpoint").write_text(
        f'model_checkpoint_path: "{before}kinds.ckpt"\n'
        f'all_model_checkpoint_paths: "{before}bert_model.ckpt"\n'
    )
    with several(copy) as reader, opened(FOLDER, "kinds.ckpt") as expected:
        assert reader.tensors == expected.tensors
        assert {path.name for path in reader.files} == {
            "kinds.ckpt.index",
            "kinds.ckpt.data-00000-of-00001",
        }


@pytest.mark.parametrize("state", [None, "", 'model_checkpoint_path: "gone.ckpt"'])
def test_several_checkpoints_without_state_file(copy: Path, state: str | None) -> None:
    if state is not None:
        (copy / "checkpoint").write_text(state)
    says = r"several.*bert_model\.ckpt and kinds\.ckpt.*give the path of"
    with pytest.raises(UsageError, match=says):
        several(copy)


def test_a_bit_in_the_data(copy: Path) -> None:
    path = copy / "bert_model.ckpt.data-00000-of-00001"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with (
        opened(copy, "bert_model.ckpt") as reader,
        pytest.raises(VerificationError, match="checksum"),
    ):
        for name in reader.tensors:
            reader.read(name)


@pytest.mark.parametrize("place", range(0, 4500, 150))
def test_a_bit_in_the_index(copy: Path, place: int) -> None:
    path = copy / "bert_model.ckpt.index"
    raw = bytearray(path.read_bytes())
    raw[place] ^= 4
    path.write_bytes(raw)
    with pytest.raises(VerificationError, match="not a sound index"):
        opened(copy, "bert_model.ckpt")


@pytest.mark.parametrize("keep", [0, 7, 48, 1000, -1])
def test_a_truncated_index(copy: Path, keep: int) -> None:
    path = copy / "bert_model.ckpt.index"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(VerificationError, match="not a sound index"):
        opened(copy, "bert_model.ckpt")


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_truncated_data(copy: Path, keep: int) -> None:
    path = copy / "bert_model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(VerificationError, match="cut short"):
        opened(copy, "bert_model.ckpt")


def test_a_missing_shard(copy: Path) -> None:
    names = ["bert_model.ckpt.index"]
    with pytest.raises(VerificationError, match="missing"):
        TensorFlow().open(copy, names)


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_raise_only_errors(copy: Path, seed: int) -> None:
    """Random bytes in the index are refused as any damage."""
    path = copy / "kinds.ckpt.index"
    generator = np.random.default_rng(seed)
    raw = bytearray(path.read_bytes())
    for place in generator.integers(0, len(raw), 5):
        raw[place] = generator.integers(0, 256)
    path.write_bytes(raw)
    try:
        with opened(copy, "kinds.ckpt") as reader:
            for name in reader.tensors:
                reader.read(name)
    except ZooError as error:
        assert "\n" not in str(error)
