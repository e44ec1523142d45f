"""The benchmark of a GPU: all sections run on a CPU with tiny models, and both sides agree."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks._cuda_cells import Cell, run_cells
from benchmarks.cuda import SECTIONS, TESTS, read_records, tables

ROOT = Path(__file__).parents[2]
BENCHMARK = [sys.executable, "-m", "benchmarks.cuda"]


@pytest.mark.long
def test_all_sections_run_on_a_cpu(tmp_path: Path) -> None:
    output = tmp_path / "cuda.jsonl"
    done = subprocess.run(
        [*BENCHMARK, "--dry-run", "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = read_records(output)
    assert [record for record in records if "error" in record] == []
    sections = [section.name for section in SECTIONS]
    assert list(dict.fromkeys(record["section"] for record in records)) == [
        "machine",
        *sections,
        TESTS,
    ]
    by_section = {
        name: [record for record in records if record["section"] == name] for name in sections
    }
    for section in SECTIONS:
        assert len(by_section[section.name]) == len(section.cells)
    assert max(record["difference"] for record in by_section["losses"]) < 1e-12
    assert min(record["agreement"] for record in by_section["inference"]) > 0.9999
    ours, theirs = (record["loss"] for record in by_section["fine-tuning"])
    assert ours == pytest.approx(theirs, rel=1e-4)
    for name in ("BERT-base", "pretraining", "fine-tuning"):
        assert min(record["tokens_per_second"] for record in by_section[name]) > 0
    assert done.stdout.strip() == tables(records)


def test_tables_of_a_run_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "cuda.jsonl"
    side = {"section": "BERT-base", "name": "BERT-base, 512", "memory_gib": 2.0}
    records = [
        {"section": "machine", "device": "cuda", "machine": "a machine"},
        {**side, "side": "zoo", "tokens_per_second": 3000.0, "mfu": 0.45, "rows": 64},
        {**side, "side": "transformers", "tokens_per_second": 1500.0},
        {"section": "inference", "name": "embed", "side": "onnx", "error": "no CUDA here"},
    ]
    lines = [json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + '\n{"section": "infer', encoding="utf-8")
    text = tables(read_records(path))
    assert "| BERT-base, 512 | 64 | 3,000 | 45.0% | 2.0 | 1,500 | 22.5% | 2.0 | 2.00x |  |" in text
    assert "| embed, onnx | no CUDA here |  |" in text


def test_cells_are_measured_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All warm up together; one that fails and one that is too slow have an error."""
    (tmp_path / "cell_of_a_test.py").write_text(
        "import sys, time\n"
        "def measure(cell, barrier):\n"
        "    if cell.side == 'fails': sys.exit('a reason')\n"
        "    if cell.side == 'sleeps': time.sleep(60)\n"
        "    barrier()\n"
        "    start = time.monotonic()\n"
        "    time.sleep(0.1)\n"
        "    return {'start': start, 'end': time.monotonic()}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(ROOT)
    cells = [
        Cell("section", "job", side, "cpu", True, str(tmp_path))
        for side in ("first", "second", "fails", "sleeps")
    ]
    until = time.monotonic() + 20
    results = {
        cell.side: result
        for cell, result in run_cells(cells, "cell_of_a_test", until=until, at_once=4)
    }
    assert results["first"]["end"] <= results["second"]["start"]
    assert results["fails"] == {"error": "a reason"}
    assert results["sleeps"] == {"error": "no time left"}


@pytest.mark.long
def test_a_missing_device_is_an_error_in_one_line() -> None:
    done = subprocess.run(
        [*BENCHMARK, "--device", "cuda:999"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_missing_packages_are_an_error_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "benchmarks.cuda"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: missing here: ") and "torch" in done.stderr
    assert done.stderr.count("\n") == 1
