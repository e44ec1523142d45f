"""Selection of files, and comparison of the index with the shards."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from tests.converters.making import BIN, INDEX, ONE, PLACES, SAFE, TWO, Sharded, save_safetensors
from zoo.errors import SourceError
from zoo.io.tensors.formats import Format


@pytest.mark.parametrize(
    ("form", "names", "expected"),
    [
        (SAFE, ["config.json", "model.safetensors"], ["model.safetensors"]),
        (SAFE, [TWO, "config.json", INDEX, ONE], [INDEX, ONE, TWO]),
        (SAFE, [ONE, TWO], [ONE, TWO]),
        (SAFE, [INDEX], [INDEX]),
        (SAFE, [ONE, TWO, INDEX, "model.safetensors"], ["model.safetensors"]),
        (SAFE, ["weights.safetensors", "config.json"], ["weights.safetensors"]),
        (SAFE, ["one.safetensors", "two.safetensors"], []),
        (SAFE, ["adapter_model.safetensors"], []),
        (SAFE, ["adapter_model.safetensors", "w.safetensors"], ["w.safetensors"]),
        (SAFE, ["onnx/model.safetensors", f"sub/{ONE}"], []),
        (SAFE, ["pytorch_model.bin", "config.json"], []),
        (SAFE, [], []),
        (BIN, ["pytorch_model.bin", "training_args.bin"], ["pytorch_model.bin"]),
        (
            BIN,
            ["pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"],
            ["pytorch_model.bin.index.json", "pytorch_model-00002-of-00002.bin"],
        ),
        (BIN, ["training_args.bin", "model.bin", "optimizer.bin"], []),
    ],
)
def test_find(form: Format, names: list[str], expected: list[str]) -> None:
    assert form.find(names) == tuple(expected)


def test_only_pickles_are_executable_and_they_come_last() -> None:
    assert [(form.name, form.executable) for form in (SAFE, BIN)] == [
        ("safetensors", False),
        ("pytorch", True),
    ]
    assert SAFE.priority > BIN.priority


def test_finding_and_scanning_import_neither_torch_nor_numpy(tmp_path: Path) -> None:
    torch.save({"t": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    script = """if True:
        import sys
        from pathlib import Path
        from zoo_converters import zoo_formats
        folder = Path(sys.argv[1])
        form = zoo_formats()[1]
        with form.open(folder, form.find([p.name for p in folder.iterdir()])) as reader:
            print(sorted(reader.tensors), {"torch", "numpy"} & sys.modules.keys())
    """
    output = subprocess.check_output([sys.executable, "-c", script, str(tmp_path)], text=True)
    assert output == "['t'] set()\n"


def save_bin(tensors: Mapping[str, float], path: Path) -> None:
    torch.save({name: torch.full((3,), value) for name, value in tensors.items()}, path)


@pytest.fixture(params=["safetensors", "bin"])
def sharded(tmp_path: Path, request: pytest.FixtureRequest) -> Sharded:
    if request.param == "bin":
        return Sharded(tmp_path, BIN, save_bin)
    return Sharded(tmp_path, SAFE, save_safetensors)


def test_shards_are_one_set(sharded: Sharded) -> None:
    with sharded.open() as reader:
        assert list(reader.files) == [sharded.path(ONE), sharded.path(TWO)]
        assert {name: reader.read(name).tolist() for name in reader.tensors} == {
            name: [1.0 + ord(name)] * 3 for name in PLACES
        }


def test_a_missing_shard(sharded: Sharded) -> None:
    sharded.path(TWO).unlink()
    sharded.refused(TWO, "is missing", INDEX)


def test_a_missing_index(sharded: Sharded) -> None:
    sharded.path(INDEX).unlink()
    sharded.refused(ONE, "their index is missing")


def test_a_shard_that_the_index_does_not_name(sharded: Sharded) -> None:
    sharded.save({"z": 1.0}, sharded.path("model-00003-of-00003.safetensors"))
    sharded.refused("model-00003-of-00003.safetensors", INDEX, "does not list it")


def test_missing_tensor(sharded: Sharded) -> None:
    files = {name: sharded.name(file) for name, file in PLACES.items()}
    sharded.index(weight_map=files | {"d": files["c"]})
    sharded.refused(TWO, "does not hold d", INDEX)


def test_a_tensor_in_another_shard_than_the_index_says(sharded: Sharded) -> None:
    files = {name: sharded.name(file) for name, file in PLACES.items()}
    sharded.index(weight_map=files | {"b": files["c"]})
    sharded.refused(TWO, "does not hold b")


def test_a_tensor_that_the_index_does_not_list(sharded: Sharded) -> None:
    files = {name: sharded.name(file) for name, file in PLACES.items() if name != "b"}
    sharded.index(weight_map=files)
    sharded.refused(ONE, "holds b", "does not list it")


def test_a_tensor_in_two_shards(sharded: Sharded) -> None:
    sharded.save({"b": 1.0, "c": 1.0}, sharded.path(TWO))
    sharded.refused("b", TWO)


def test_a_damaged_shard(sharded: Sharded) -> None:
    sharded.path(TWO).write_bytes(sharded.path(TWO).read_bytes()[:-1])
    sharded.refused(TWO)


@pytest.mark.parametrize(
    "name", ["../m.safetensors", "/etc/passwd", "x/../../y", "", "..\\m", "a\0b"]
)
def test_index_with_path_outside_of_the_directory(sharded: Sharded, name: str) -> None:
    sharded.index(weight_map={"a": name})
    sharded.refused("outside of its directory", INDEX)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[" * 100_000, "nesting of JSON is 100,000"),
        (b" " * (1 << 24) + b"{}", "size of the JSON file in bytes is 16,777,218"),
        (b"[]", "is not a JSON object"),
        (b"{}", "no weight_map"),
        (b'{"weight_map": ["a"]}', "no weight_map"),
        (b'{"weight_map": {}}', "no weight_map"),
        (b'{"weight_map": {"a": 1}}', "no weight_map"),
        (b'{"weight_map": {"a": "x", "a": "y"}}', "'a' is given twice"),
    ],
)
def test_a_damaged_index(sharded: Sharded, content: bytes, says: str) -> None:
    sharded.path(INDEX).write_bytes(content)
    sharded.refused(says, INDEX)


def test_an_index_that_is_a_directory(sharded: Sharded) -> None:
    sharded.path(INDEX).unlink()
    sharded.path(INDEX).mkdir()
    sharded.refused(INDEX, error=SourceError)


def test_an_index_in_a_folder_of_links(sharded: Sharded, tmp_path: Path) -> None:
    """As in the Hub's cache, where files are links."""
    (tmp_path / "snapshot").mkdir()
    for path in list(tmp_path.iterdir()):
        if path.is_file():
            (tmp_path / "snapshot" / path.name).symlink_to(path)
    sharded.folder = tmp_path / "snapshot"
    with sharded.open() as reader:
        assert sorted(reader.tensors) == ["a", "b", "c"]
