"""Files that declare or hold much, for the table of docs/reliability.md."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.sizes import GROWN, declare, grown, integers, number_of_integers
from tests.fuzz.table import ROOT
from tests.fuzz.trees import parse


def test_each_integer_of_a_tree_can_be_declared() -> None:
    data = b'{"a": [1, true, 2.5, "x"], "b": {"c": 3}}'
    assert number_of_integers(data) == 2 == len(list(integers(parse(data))))
    assert json.loads(declare(data, 0, 7)) == {"a": [7, True, 2.5, "x"], "b": {"c": 3}}
    assert json.loads(declare(data, 1, 10**30))["b"] == {"c": 10**30}
    first, second = declare(b'{"a": 1}\n{"a": 2}\n', 0, 5).splitlines()
    assert (json.loads(first), json.loads(second)) == ({"a": 5}, {"a": 2})


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json", b'{"a": 1}'),
        ("a.json", b'[{"a": 1}]'),
        ("a.tsv", b"a\tb\n"),
        ("a.bin", b"abc\n"),
    ],
)
def test_files_are_grown(name: str, data: bytes) -> None:
    assert 0.9 * GROWN < len(grown(Path(name), data)) < 1.1 * GROWN


@pytest.mark.long
@pytest.mark.parametrize("name", ["peft", "adapterhub", "gguf", "tokenizer-json", "modules"])
def test_a_small_file_that_declares_much_takes_little_memory(name: str, tmp_path: Path) -> None:
    file = tmp_path / "sizes.json"
    command = [sys.executable, "-m", "tests.fuzz.sizes", "--reader", name, "-o", str(file)]
    subprocess.run(command, check=True, cwd=ROOT)
    measured = json.loads(file.read_text("utf-8"))[name]["declared"]
    assert measured["size"] < 1 << 20 and measured["peak"] < 150 << 20
