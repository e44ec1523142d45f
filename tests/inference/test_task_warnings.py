"""Texts that are cut are counted once, in the last line of a command."""

import json
import warnings
from pathlib import Path
from typing import Any

from tests import warm
from tests.finetuning.making import write_table
from tests.inference.conftest import Small
from tests.tasks.zero_shot.making import NLI, labelled
from zoo.inference.task_warnings import collect_cut_texts, cut_line, report_cut_texts

LONG = "a b c d " * 20
QUERIES = ["a b", LONG, "c"]


def caught_lines(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in caught if "longer than" in str(warning.message)]


def test_lines() -> None:
    assert cut_line(1, 1, 40) == "1 of 1 texts was longer than 40 tokens and was cut"
    assert cut_line(3, 1200, 1024, "x") == (
        "3 of 1,200 texts were longer than 1,024 tokens and were cut; x"
    )


def test_blocks_inside_of_a_block_are_added() -> None:
    with warnings.catch_warnings(record=True) as caught, collect_cut_texts() as cut_texts:
        report_cut_texts(1, 4, 40, "")
        with collect_cut_texts():
            report_cut_texts(2, 3, 40, "")
        with collect_cut_texts(warn=False):
            report_cut_texts(5, 5, 40, "")
        report_cut_texts(0, 2, 8, "")
    assert cut_texts.count == 3
    assert caught_lines(caught) == ["3 of 7 texts were longer than 40 tokens and were cut"]


def test_a_search_counts_texts_that_windows_read_and_queries_that_they_do_not(small: Small) -> None:
    model, _ = small("BertModel")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.search(QUERIES, [*QUERIES, LONG], top_k=1)
        model.rerank("a", [LONG, "b"])
    assert caught_lines(caught) == [
        "2 of 4 texts were longer than 40 tokens and were cut; --doc-stride 10 reads them whole",
        "1 of 3 texts was longer than 40 tokens and was cut",
        "1 of 2 texts was longer than 40 tokens and was cut; --doc-stride 10 reads them whole",
    ]


def test_evaluations_and_mining_report_the_number(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification", **labelled(NLI))
    rows = [{"text": text, "label": "b" if k else "c"} for k, text in enumerate(QUERIES)]
    table = write_table(tmp_path / "t.jsonl", rows)
    arguments = ("eval", str(model.checkpoint.path), "--task", "zero-shot", "--eval", str(table))
    templates = ("--template", "a {}", "--template", "b {}")  # the same texts twice
    done = warm.zoo(*arguments, *templates, "--backend", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["truncated"] == 1
    line = "1 of 3 texts was longer than 40 tokens and was cut; --doc-stride 10 reads them whole"
    assert done.stderr.splitlines()[-1] == f"warning: {line}"
    assert done.stderr.count("longer than") == 1


def test_mining_reports_the_number(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    pairs: list[dict[str, Any]] = [
        {"text": text, "pair": f"{text} d"} for text in ("a", "b c", "e", LONG)
    ]
    table = write_table(tmp_path / "pairs.jsonl", pairs)
    words = ["mine-negatives", str(model.checkpoint.path), "--input", str(table)]
    words += ["--num-negatives", "1", "--backend", "cpu", "--json"]
    done = warm.zoo(*words, "-o", str(tmp_path / "mined.jsonl"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["truncated"] == 2  # a query and its text
    assert done.stderr.splitlines()[-1].startswith("warning: 1 of 4 texts was longer than 40")
    in_windows = warm.zoo(*words, "--doc-stride", "4", "-o", str(tmp_path / "windows.jsonl"))
    assert in_windows.returncode == 0, in_windows.stderr
    assert json.loads(in_windows.stdout)["truncated"] == 1  # the query
