"""Escaping of untrusted text on the terminal, and output streams that cannot be written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.cli.output import (
    fail,
    fields,
    json_line,
    line,
    note,
    piece,
    result_line,
    side_by_side,
    table,
)
from zoo.io.terminal import CONTROLS, escape_controls, escape_json

FORGED = "weight\nerror: \x1b[31mred\x9b2J\u202egnp\u2066\x00\x7f\udcff\u2028end"


def start(
    *arguments: str, stdout: int = subprocess.PIPE, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "zoo", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        check=False,
    )


def test_no_character_reaches_the_terminal_that_it_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line(FORGED)
    note(FORGED)
    json_line({FORGED: [FORGED]})
    line(table([[FORGED, "b"]], ("a", "b"))[1])
    out, err = capsys.readouterr()
    assert not CONTROLS.search((out + err).replace("\n", ""))
    assert out.count("\n") == 3 and err.count("\n") == 1
    assert json.loads(out.splitlines()[1]) == {FORGED: [FORGED]}
    assert out.startswith("weight\\nerror: \\x1b[31mred\\x9b2J\\u202egnp\\u2066\\x00\\x7f\\udcff")


def test_a_vector_on_a_terminal_is_its_first_numbers_and_its_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    vector = [k / 8 for k in range(384)]
    value = {"text": "a", "embedding": vector, "scores": [0.5, 0.25], "ids": list(range(100))}
    result_line(value)
    assert json.loads(capsys.readouterr().out) == value
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    result_line({**value, "layers": {"-1": [vector] * 12}})
    short = [0.0, 0.125, 0.25, 0.375, "... 384 in all"]
    layers = {"-1": [short, short, short, short, "... 12 in all"]}
    assert json.loads(capsys.readouterr().out) == {**value, "embedding": short, "layers": layers}


def test_letters_of_all_scripts_stay_as_they_are() -> None:
    text = "naïve 日本語 עברית 👩\u200d🔬 \u00a0"
    assert escape_controls(text) == escape_json(text) == text


def test_generated_text_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    piece("one\n\ttwo\x1b[2J")
    assert capsys.readouterr().out == "one\n\ttwo\\x1b[2J"


@pytest.mark.by_default("environment0-name2")
@pytest.mark.parametrize(
    "name",
    [
        *(FORGED.replace("\x00", ""), "é", "a/" * 3000),
        # names that are too long, as the one of many folders is
        *(pytest.param("a" * length, marks=pytest.mark.long) for length in (300, 5000)),
    ],
)
@pytest.mark.parametrize(
    "environment", [{}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}]
)
def test_a_strange_name_is_one_line(name: str, environment: dict[str, str]) -> None:
    done = start("info", name, "--json", environment={**environment, "PYTHONCOERCECLOCALE": "0"})
    assert done.returncode in (2, 4)
    assert done.stderr.count(b"\n") == 1 and len(done.stderr) < 8000
    assert done.stderr.startswith(b"error: ") and b"bug" not in done.stderr
    assert json.loads(done.stdout)["exit_code"] == done.returncode


@pytest.mark.by_default("arguments0")
@pytest.mark.parametrize("arguments", [("families",), ("families", "--json"), ("--help",)])
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = start(*arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.by_default("arguments0")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [("families",), ("models", "--json"), ("--help",)])
def test_a_full_disk_behind_standard_output_is_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = start(*arguments, stdout=full.fileno())
    assert done.returncode == 2
    assert done.stderr == b"error: cannot write standard output: No space left on device\n"


@pytest.mark.by_default("1")
@pytest.mark.parametrize("stream", ["1", "2", "0"])
def test_a_closed_stream_is_no_traceback(stream: str, tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m zoo info all-minilm-l6-v2 {stream}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert done.returncode == (2 if stream == "1" else 0), done.stderr
    assert b"Traceback" not in done.stderr and done.stderr.count(b"\n") == (stream == "1")


def test_an_error_that_repeats_a_long_value_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    fail(f"config.json: {'x' * 100_000} is not a number", "leave it out", 2, [])
    error = capsys.readouterr().err
    assert error.startswith("error: config.json: xxx")
    assert error.endswith("xxx is not a number; leave it out\n")
    assert "characters]" in error and len(error) < 1500


def test_json_lines_are_strict(capsys: pytest.CaptureFixture[str]) -> None:
    json_line({"perplexity": float("inf"), "scores": [float("nan"), 0.5]})
    assert capsys.readouterr().out == '{"perplexity": null, "scores": [null, 0.5]}\n'


LONG = "a command that is named in a message, such as `zoo convert model -o dir`, is not broken"


def test_lines_break_at_words_of_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/" + "x" * 90
    line(f"  {LONG} in {path} of it")
    monkeypatch.setenv("COLUMNS", "60")
    line(f"  {LONG} in {path} of it")
    fail(LONG, LONG, 2, [], [LONG])
    out, err = capsys.readouterr()
    whole, *broken = out.splitlines()
    assert whole == f"  {LONG} in {path} of it"
    assert [text for text in broken if len(text) > 60] == [f"    {path}"]
    assert [text[:4] for text in broken] == ["  a ", *["    "] * (len(broken) - 1)]
    assert " ".join(text.strip() for text in broken) == whole.strip()
    assert [text for text in err.splitlines() if len(text) > 60] == []
    assert err.count("`zoo convert model -o dir`") == 3


def test_the_second_column_of_a_line_goes_on_below_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    line("  round trip   31 of 33 tensors of the source were rebuilt bit for bit")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("  round trip   31 of 33") and len(first) <= 60
    assert second.startswith(" " * 15) and second[15] != " "


def test_a_table_drops_columns_then_breaks_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    header = ("name", "parameters", "page", "note")
    rows = [
        ("one", "1.5 M", "https://example.org/" + "p" * 40, "words " * 20),
        ("two", "300 M", "", ""),
    ]
    wide = table(rows, header, drops=("page",), wraps=("note",))
    assert len(wide) == 3 and "https" in wide[1]
    monkeypatch.setenv("COLUMNS", "50")
    narrow = table(rows, header, drops=("page",), wraps=("note",))
    assert [text for text in narrow if len(text) > 50] == []
    assert narrow[0].split() == ["name", "parameters", "note"]
    assert narrow[1].startswith("one        1.5 M  words words")
    assert narrow[-1] == "two        300 M"
    assert sum(text.count("words") for text in narrow) == 20


def test_columns_side_by_side_go_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [(f"run-{number}", "0.5", "x" * 20) for number in range(5)]
    monkeypatch.setenv("COLUMNS", "60")
    lines = side_by_side(("metric", "loss", "data"), columns)
    assert [text for text in lines if len(text) > 60] == []
    headers = [text.split() for text in lines if text.startswith("metric")]
    assert headers == [
        ["metric", "run-0", "run-1"],
        ["metric", "run-2", "run-3"],
        ["metric", "run-4"],
    ]


def test_values_go_on_below_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = fields({"tasks": "one two three four five six seven eight nine ten eleven", "n": "1"})
    assert lines == [
        "tasks  one two three four five six seven eight nine ten",
        "       eleven",
        "n      1",
    ]
    (path,) = fields({"a path": "/" + "x" * 55})[1:]
    assert path == "    /" + "x" * 55
