"""Progress of evaluations and searches: rows or texts, batch by batch, to their number."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests.evaluation.conftest import Small
from tests.tasks.retrieval.making import beir
from zoo.io.progress import Phase
from zoo.tasks.table import open_input, run_options, task_progress

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
TEXTS = [f"a b c d{' e' * (number % 5)}" for number in range(200)]

Phases = dict[str, tuple[str, int | None, list[int]]]


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> Phases:
    """Label of each phase -> unit, total, and by how much it advanced."""
    amounts: Phases = {}

    def advance(phase: Phase, amount: int) -> None:
        unit, total, steps = amounts.setdefault(phase.label, (phase.unit, phase.total, []))
        assert (unit, total) == (phase.unit, phase.total)
        steps.append(amount)

    monkeypatch.setattr(Phase, "advance", advance)
    return amounts


def assert_counts(phases: Phases, label: str, unit: str, count: int, *, steps: int) -> None:
    """Check that a phase counts to its total, in some steps at least."""
    assert phases[label][:2] == (unit, count)
    assert sum(phases[label][2]) == count
    assert len(phases[label][2]) >= steps


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "pair", "label"])
        writer.writerows([text, text[:3], number % 2] for number, text in enumerate(TEXTS))
    return path


@pytest.mark.by_default("BertModel")
@pytest.mark.parametrize(
    ("name", "task", "options"),
    [
        ("BertForSequenceClassification", "text-classification", {}),
        ("BertModel", "sentence-embedding", {"pair": "pair"}),
        ("BertModel", "pair-classification", {"pair": "pair"}),
    ],
)
def test_rows_are_counted_in_batches(
    small: Small, table: Path, phases: Phases, name: str, task: str, options: dict[str, Any]
) -> None:
    model, _ = small(name)
    zoo.evaluate(model, task=task, eval=table, **options)
    assert phases["reading"][0] == "rows" and sum(phases["reading"][2]) == len(TEXTS)
    assert_counts(phases, "evaluating", "texts", len(TEXTS), steps=2)


def test_lines_are_counted_by_scorers(small: Small, tmp_path: Path, phases: Phases) -> None:
    model, _ = small("BertForMaskedLM")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS[:20]) + "\n")
    zoo.evaluate(model, task="pseudo-perplexity", eval=tmp_path / "lines.txt")
    assert_counts(phases, "evaluating", "texts", 20, steps=20)


def test_texts_are_embedded_before_queries(small: Small, tmp_path: Path, phases: Phases) -> None:
    model, _ = small("BertModel")
    beir(tmp_path / "data")
    zoo.evaluate(model, task="retrieval", eval=tmp_path / "data")
    assert_counts(phases, "evaluating", "queries", 11, steps=11)
    unit, _, steps = phases["reading"]
    size = sum(path.stat().st_size for path in (tmp_path / "data").rglob("*.*"))
    assert unit == "bytes" and sum(steps) >= size


@pytest.mark.long
@pytest.mark.parametrize("verb", ["search", "rerank"])
def test_searches_count_texts_and_queries(
    small: Small, tmp_path: Path, phases: Phases, verb: str
) -> None:
    model, _ = small("BertModel")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    given: dict[str, Any] = {"query": "a b"}
    if verb == "search":
        given = {"corpus": tmp_path / "texts.txt"}
    options = run_options(verb, given)
    task_input = open_input(verb, source=str(tmp_path / "texts.txt"), options=options)
    make: Callable[..., Any] = zoo.tasks.make_task
    task = make(verb, model.checkpoint, model.session, **task_input.options)
    with task_progress(task, task_input):
        assert len(list(task.run(task_input.records))) == len(TEXTS)
    unit, _, steps = phases[f"running {verb}"]
    assert (unit, sum(steps)) == ("texts", len(TEXTS)) and len(steps) > 1
    if verb == "search":
        unit, _, steps = phases["embedding"]
        assert (unit, sum(steps)) == ("texts", len(TEXTS)) and len(steps) > 1
