"""Reading of untrusted YAML."""

import sys
from pathlib import Path

import pytest

from tests.processes import run_limited
from zoo.errors import VerificationError
from zoo.io.yaml import parse_yaml, read_yaml


def test_yaml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text(
        "﻿a: &files [x, 5e-4, 1.5, 2020-13-45]\nb: *files\nc: {<<: {d: 1}, e: ~, 1: yes}\n",
        encoding="utf-8",
    )
    files = ["x", 0.0005, 1.5, "2020-13-45"]
    assert read_yaml(path) == {"a": files, "b": files, "c": {"d": 1, "e": None, 1: True}}


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not YAML that can be read"),
        ("a: \x07", "not YAML that can be read"),
        ("a: 1\n---\nb: 2", "not YAML that can be read"),
        ("a: 1\na: 2", "a is given twice"),
        ("? [a]\n: 1", "unhashable"),
        ("a: !!python/object/apply:os.system [id]", "tags"),
        ("a: !!int 1", "tags"),
        ("%TAG ! tag:x:\n---\na: 1", "directives"),
        ("a: *b", r"\*b is not defined"),
        ("a: &a [*a]", r"\*a is not defined"),
        ("a: .nan", r"\.nan is not a finite"),
        ("a: 1e999", "1e999 is not a finite"),
        ("a: " + "9" * 5000, "length of a number is 5,000"),
        ("a: " + "1" + ":1" * 100_000, "length of a number is 200,001"),
        ("[" * 50_000, "nesting of YAML is 33"),
        ("{a: " * 50_000, "nesting of YAML is 33"),
        ("- " * 50_000, "nesting of YAML is 33"),
        ("? " * 50_000, "nesting of YAML is 33"),
        (BOMB, "number of YAML values is"),
        (BOMB.replace("[*", "{<<: [*").replace("]", "]}").replace("{x, x]}", "{x: 1}"), "YAML"),
        ("- x\n" * 200_000, "number of YAML values is"),
        ("x" * (2 << 20), "length of the YAML text is 2,097,152"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_malformed_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message) as refused:
        parse_yaml(text, "registry.yaml")
    assert str(refused.value).startswith("registry.yaml")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.long
def test_largest_accepted_files_take_seconds(tmp_path: Path) -> None:
    texts = [
        "{" + ",".join(f"{n}: " for n in range(49_000)) + "}",
        "# " * 500_000,
        "- x\n" * 99_000,
    ]
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_text(text)
    code = "import sys; from pathlib import Path; from zoo.io.yaml import read_yaml; "
    child = run_limited(
        [sys.executable, "-c", code + "[read_yaml(Path(p)) for p in sys.argv[1:]]"]
        + [tmp_path / str(number) for number in range(3)],
        seconds=60,
    )
    assert child.returncode == 0, child.stderr
    assert child.peak_bytes < 300 << 20
