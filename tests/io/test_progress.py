"""Progress of phases: bars on a terminal, lines elsewhere, and nothing for short ones."""

import ast
import logging
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebooks import shown_html
from zoo.data.readers.tables import read_rows
from zoo.errors import UsageError
from zoo.io import progress as module
from zoo.io.files import open_regular
from zoo.io.progress import (
    Phase,
    enable_progress,
    in_notebook,
    progress,
    progress_of_files,
)

PROGRAM = """
import logging, time
from zoo.cli.output import prepare
from zoo.io import progress as module
from zoo.io.progress import progress

prepare()
module.DELAY_SECONDS, module.REFRESH_SECONDS = 0.0, 0.01
with progress("outer", unit="steps", items=lambda: range(4)) as outer:
    outer(1)
    with progress("inner", None) as inner:
        inner(12345)
        time.sleep(0.3)
        logging.getLogger("zoo").info("a line between")
        time.sleep(0.2)
    outer(3)
print("a result")
"""


def test_bars_of_phases_share_the_terminal() -> None:
    ours, theirs = pty.openpty()
    setting = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=theirs, env=setting
    ) as process:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
        assert process.stdout is not None and process.stdout.read() == b"a result\n"
    os.close(ours)
    text = shown.decode()
    assert "outer" in text and "1 of 4 steps, " in text and " left" in text
    assert "inner" in text and "12,345, " in text
    assert "a line between\r\n" in text  # above the bars
    assert process.returncode == 0


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 4096)
    except OSError:  # raised on Linux when the other end is closed
        return b""


def test_without_a_terminal_there_is_a_line_at_intervals(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.1)
    monkeypatch.setattr(module, "FIRST_LINE_SECONDS", 0.1)
    caplog.set_level(logging.INFO, "zoo")
    with progress("reading", 2000, unit="texts") as advance:
        advance(500)
        time.sleep(0.35)
    lines = [record.getMessage() for record in caplog.records]
    assert 2 <= len(lines) <= 3
    assert [line for line in lines if not line.startswith("reading: 500 of 2,000 texts, ")] == []


def test_a_short_phase_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with progress("reading", 10) as advance:
        advance(10)
    assert capfd.readouterr() == ("", "")
    assert time.monotonic() - began < 1, "the end of a phase does not wait"


def test_disabled_progress_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_log_lines", None)  # an error if it were called
    enable_progress(False)
    try:
        with progress("reading", 10) as advance:
            advance(10)
    finally:
        enable_progress(True)
    assert module._number_of_bars == 0


@pytest.mark.parametrize(
    ("total", "unit", "done", "expected"),
    [
        (2000, "texts", 500, "500 of 2,000 texts, 50/s, 0:30 left"),
        (None, "texts", 500, "500 texts, 50/s, 0:10"),
        (4_000_000_000, "bytes", 1_000_000_000, "1.0 of 4.0 GB, 100.0 MB/s, 0:30 left"),
        (None, "bytes", 2500, "2.5 kB, 0.0 MB/s, 0:10"),
        (10, "steps", 1, "1 of 10 steps, 0.1/s, 1:30 left"),
        (7200, "", 10, "10 of 7,200, 1.0/s, 1:59:50 left"),
        (100, "texts", 0, "0:10"),
        (100, "texts", 130, "100 of 100 texts, 10/s, 0:00 left"),
    ],
)
def test_figures_of_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, total: int | None, unit: str, done: int, expected: str
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    phase = Phase("a phase", total, unit)
    now[0] += 10
    phase.advance(done)
    assert phase.figures() == expected


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_reading_is_counted_in_bytes_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    import gzip

    import pyarrow.parquet

    path, other = tmp_path / f"t{ending}", tmp_path / "other.txt"
    text = "text\n" + "".join(f"row {k}\n" for k in range(5000))
    if ending == ".parquet":
        table = pyarrow.table({"text": [f"row {k}" for k in range(5000)]})
        pyarrow.parquet.write_table(table, path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if ending == ".csv.gz" else text.encode())
    other.write_text("not counted")
    counted = []
    monkeypatch.setattr(Phase, "advance", lambda self, amount: counted.append(amount))
    with progress_of_files("reading", [path, tmp_path / "missing"]):
        assert sum(1 for _ in read_rows(path, ["text"])) == 5000
        with open_regular(other) as file:
            assert file.read() == b"not counted"
    size = path.stat().st_size
    if ending == ".parquet":  # its end is read first, too
        assert size <= sum(counted) <= 2 * size
    else:
        assert sum(counted) == size
    with open_regular(path) as file:
        file.read()
    assert sum(counted) <= 2 * size, "no longer counted"


def test_items_are_counted_while_the_phase_runs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DELAY_SECONDS", "FIRST_LINE_SECONDS", "REFRESH_SECONDS"):
        monkeypatch.setattr(module, name, 0.05)
    caplog.set_level(logging.INFO, "zoo")
    with progress("running", unit="texts", done=100, items=lambda: range(900)) as advance:
        time.sleep(0.2)
        assert caplog.records == [], "nothing is done yet"
        advance(50)
        time.sleep(0.2)
    line = caplog.records[0].getMessage()
    assert line.startswith("running: 150 of 900 texts, "), line
    rate = float(line.split(", ")[1].removesuffix("/s").replace(",", ""))
    assert 50 / 0.5 < rate < 50 / 0.2, "of the rows of this process"
    assert line.endswith(" left")


def test_items_that_cannot_be_read_leave_the_total_unknown(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DELAY_SECONDS", "FIRST_LINE_SECONDS"):
        monkeypatch.setattr(module, name, 0.05)
    caplog.set_level(logging.INFO, "zoo")

    def items() -> Iterator[int]:
        yield 1
        raise UsageError("row 2 is not a text")

    with progress("running", unit="texts", items=items) as advance:
        advance(50)
        time.sleep(0.2)
    assert caplog.records[0].getMessage().startswith("running: 50 texts, ")


def test_only_the_innermost_phase_logs_and_others_do_not_count_its_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_LINE_SECONDS", "LINE_SECONDS", "REFRESH_SECONDS"):
        monkeypatch.setattr(module, name, 0.05)
    caplog.set_level(logging.INFO, "zoo")
    with progress("running search", 100, unit="texts") as outer:
        with progress("embedding", 10, unit="texts") as inner:
            inner(10)
            time.sleep(0.5)
        assert {line.partition(":")[0] for line in caplog.messages} == {"embedding"}
        caplog.clear()
        outer(10)
        time.sleep(0.2)
    rate = float(caplog.messages[-1].split(", ")[1].removesuffix("/s"))
    assert rate > 10 / 0.5, "the texts of 0.2 seconds, and not of 0.7"


def test_phases_have_one_name_each() -> None:
    """Every label in the code begins with the name of a phase, and every phase has a label."""
    labels: set[str] = set()
    for path in Path(module.__file__).parents[1].rglob("*.py"):
        code = path.read_text("utf-8")
        if "progress(" not in code and "progress_of_files(" not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name not in ("progress", "progress_of_files", "show_progress") or not node.args:
                continue
            label: ast.AST = node.args[0]
            if isinstance(label, ast.JoinedStr):
                label = label.values[0]
            if isinstance(label, ast.Constant):
                labels.add(str(label.value).strip())
    names = {name for name in module.PHASES for label in labels if label.startswith(name)}
    assert {label for label in labels if not label.startswith(tuple(module.PHASES))} == set()
    # It is the label of a call of ``Evaluation.stream``.
    assert module.PHASES.keys() - names == {"generating"}


CELLS = """
import time
import zoo.io.progress as module
module.DELAY_SECONDS = module.REFRESH_SECONDS = 0.01
assert module.in_notebook()
with module.progress("<reading>", 4, unit="rows") as advance:
    advance(3)
    time.sleep(0.3)
"""


@pytest.mark.long
def test_a_notebook_shows_a_bar_and_removes_it() -> None:
    pages = shown_html(CELLS)
    assert len(pages) > 2 and pages[-1] == ""
    for page in pages[1:-1]:
        assert page.startswith(
            '<progress value="3" max="4"></progress> &lt;reading&gt;  3 of 4 rows'
        )


def test_outside_of_a_notebook_there_is_no_cell() -> None:
    assert not in_notebook()
