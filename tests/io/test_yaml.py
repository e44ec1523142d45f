"""Reading of untrusted YAML."""

import sys
from pathlib import Path

import pytest

from tests.processes import run_limited
from zoo.errors import VerificationError
from zoo.io.yaml import dump_yaml, parse_yaml, read_yaml


def test_yaml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text(
        "﻿a: &files [x, 5e-4, 1.5, 2020-13-45]\nb: *files\nc: {<<: {d: 1}, e: ~, 1: yes}\n",
        encoding="utf-8",
    )
    files = ["x", 0.0005, 1.5, "2020-13-45"]
    assert read_yaml(path) == {"a": files, "b": files, "c": {"d": 1, "e": None, 1: True}}


def test_numbers_are_decimal() -> None:
    """YAML 1.1 also reads the others, as 10, 16, 8, 90 and 12."""
    texts = ["1_0", "0x10", "010", "1:30", "1_2.5", "\uff11\uff12", "2020-01-01", "1e5x"]
    assert [parse_yaml(text, "--set a") for text in texts] == texts
    numbers = {
        "12": 12,
        "10_000": 10_000,
        "-3": -3,
        "+3": 3,
        "0": 0,
        "5e-4": 5e-4,
        "1.5E+3": 1500.0,
        ".5": 0.5,
    }
    for text, number in numbers.items():
        value = parse_yaml(text, "--set a")
        assert (value, type(value)) == (number, type(number))


def test_what_is_written_is_read_back() -> None:
    labels = ["1e5", "1.5e5", "1_000", "0x10", "010", "yes", "~", "1.", "-", "a: b", "12"]
    values = {"labels": labels, "rate": 1e-05, "large": 1e22, "count": 3, "none": None, "on": True}
    assert parse_yaml(dump_yaml(values), "config.yaml") == values
    with pytest.raises(VerificationError, match="is not a finite number"):
        dump_yaml({"rate": float("nan")})


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
