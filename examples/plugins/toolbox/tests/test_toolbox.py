"""The parts of the toolbox, each against NumPy or values that are worked by hand."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from zoo_toolbox.csv_logger import CsvLogger
from zoo_toolbox.npz import Npz
from zoo_toolbox.same_document import document_pairs
from zoo_toolbox.word_order import WordOrderOptions, select_trigrams

from zoo.errors import UsageError, VerificationError
from zoo.hub.registry import read_registry
from zoo.io.tensors.formats import TensorInfo, TensorToWrite
from zoo.plugins import get_family

ARRAYS: dict[str, Any] = {
    "embeddings.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "norm.bias": np.array([0.5, -1.5], dtype=np.float16),
    "scale": np.array(3.0, dtype=np.float32),
}


def test_archives_of_numpy_are_read(tmp_path: Path) -> None:
    """Names, shapes and values are those that NumPy wrote."""
    np.savez(tmp_path / "model.npz", **ARRAYS)
    names = Npz().find(["config.json", "model.npz"])
    with Npz().open(tmp_path, names) as reader:
        assert reader.tensors["embeddings.weight"] == TensorInfo("F32", (3, 4))
        for name, array in ARRAYS.items():
            assert np.array_equal(reader.read(name), array)
            assert reader.read(name).dtype == array.dtype


def test_numpy_reads_archives(tmp_path: Path) -> None:
    """Tensors that come in several pieces are whole again."""
    outputs = [
        TensorToWrite(
            name,
            TensorInfo("F16" if array.dtype == np.float16 else "F32", array.shape),
            partial(np.array_split, array.reshape(-1), 2),
        )
        for name, array in ARRAYS.items()
    ]
    written: list[int] = []
    assert Npz().write(tmp_path, outputs, written.append) == [tmp_path / "model.npz"]
    with np.load(tmp_path / "model.npz") as archive:
        assert archive.files == list(ARRAYS)
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(archive[name], array)
    assert sum(written) == sum(array.nbytes for array in ARRAYS.values())


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """Pickled objects, integers, columns first, and damaged files."""
    for array in (np.array([None]), np.arange(3), np.ones((2, 3), np.float32, order="F")):
        np.savez(tmp_path / "model.npz", x=array)
        with pytest.raises(VerificationError, match="not an array of floats"):
            Npz().open(tmp_path, ["model.npz"])
    (tmp_path / "model.npz").write_bytes(b"PK" + bytes(100))
    with pytest.raises(VerificationError, match="damaged"):
        Npz().open(tmp_path, ["model.npz"])
    tensor = TensorToWrite("x", TensorInfo("BF16", (2,)), lambda: [np.zeros(2, np.uint16)])
    with pytest.raises(UsageError, match="BF16"):
        Npz().write(tmp_path, [tensor], lambda _: None)


def test_trigrams_are_apart_and_within_segments() -> None:
    """All possible trigrams of a row are drawn in time, and none that crosses a boundary."""
    free = np.array([1, 1, 1, 1, 0, 2, 2, 2, 0, 3, 3])
    seen = {tuple(select_trigrams(free, 0.5, np.random.default_rng(k))[0]) for k in range(50)}
    assert seen <= {(0, 1, 2), (1, 2, 3), (5, 6, 7)}
    both = select_trigrams(free, 0.7, np.random.default_rng(0))
    assert len(both) == 2 and len(set(both.flatten())) == 6
    assert select_trigrams(np.zeros(9, np.int64), 0.5, np.random.default_rng(0)).shape == (0, 3)
    with pytest.raises(ValueError, match="shuffle_prob"):
        WordOrderOptions(shuffle_prob=1.5)


def test_pairs_are_of_one_document_or_of_two() -> None:
    """Four documents of 1 to 4 sentences, which have 3 tokens each."""
    split: Any = SimpleNamespace(
        sentences=np.arange(0, 33, 3), documents=np.array([0, 1, 3, 6, 10])
    )
    document = np.repeat(np.arange(4), np.diff(split.documents))
    rng = np.random.default_rng(0)
    labels = set()
    for _ in range(20):
        pairs = list(document_pairs(split, 128, rng.random))
        assert [first for first, *_ in pairs] == [3, 9, 12, 18, 21, 24]
        for first, end, other, other_end, label in pairs:
            assert end - first == other_end - other == 3
            one = document[first // 3]
            two = document[other // 3]
            assert (one == two and first < other) if label == 0 else one != two
            labels.add(label)
    assert labels == {0, 1}


def test_a_resumed_run_continues_the_table(tmp_path: Path) -> None:
    """Rows after the checkpoint are written again."""
    for resumed, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        logger = CsvLogger(tmp_path, resumed)
        for step in steps:
            logger.log_scalars({"train/loss": step / 2 + resumed}, step)
        logger.close()
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert rows == [
        "step,name,value",
        "1,train/loss,0.5",
        "2,train/loss,1.0",
        "3,train/loss,3.5",
        "4,train/loss,4.0",
    ]


def test_parameters_of_the_checkpoint() -> None:
    """The number in the registry, derived by hand, is that of the family's rules."""
    (row,) = read_registry(Path(__file__).parents[1] / "zoo_toolbox" / "registry.yaml").values()
    family = get_family(row.family)
    kind: Any = family.config_type
    config = kind(hidden_size=384, num_layers=3, num_heads=12, intermediate_size=1536)
    assert row.parameters == family.weights(config, str(row.head)).parameters() == 17_389_824
