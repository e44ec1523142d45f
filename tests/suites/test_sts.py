"""STS against sentence-transformers and SciPy, and folders that lack files."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

import zoo
from tests import warm
from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.suites.frozen_folders import STS_PARTS, make_sts
from tests.suites.reference import Reference, split_words
from zoo.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
FLOAT64: dict[str, Any] = {"backend": "cpu", "dtype": "float64"}


@pytest.fixture
def sts(tmp_path: Path) -> Path:
    return make_sts(tmp_path / "data")


def semeval(folder: Path, part: str) -> tuple[list[str], list[str], Any]:
    """Read a part as SentEval does."""
    prefix = "STS2016" if part == "plagiarism" else "STS"
    rows = (folder / f"{prefix}.input.{part}.txt").read_text().splitlines()
    scores = np.array((folder / f"{prefix}.gs.{part}.txt").read_text().splitlines())
    pairs = [row.split("\t")[:2] for row, score in zip(rows, scores, strict=True) if score != ""]
    first, second = zip(*pairs, strict=True)
    return (
        [*map(split_words, first)],
        [*map(split_words, second)],
        scores[scores != ""].astype(float),
    )


def table(path: Path, text: int, score: int, *, header: bool) -> tuple[Any, Any, Any]:
    rows = [line.split("\t") for line in path.read_text().splitlines()[header:]]
    first, second = ([row[text + number] for row in rows] for number in (0, 1))
    return first, second, [float(row[score]) for row in rows]


def test_correlations_are_those_of_scipy(hub_checkpoint: Make, sts: Path, tmp_path: Path) -> None:
    """Of all pairs of a year together, and of its parts, as in SimCSE's copy of SentEval."""
    source = hub_checkpoint("BertModel")
    reference = Reference(source)
    expected = {}
    for year, parts in STS_PARTS.items():
        cosines, scores = [], []
        for part in parts:
            first, second, part_scores = semeval(sts / "STS" / f"{year}-en-test", part)
            cosines.append(reference.cosines(first, second))
            scores.append(part_scores)
        sizes = [len(values) for values in scores]
        of_parts = [spearmanr(*values)[0] for values in zip(cosines, scores, strict=True)]
        together = np.concatenate(cosines), np.concatenate(scores)
        spearman = spearmanr(*together)[0]
        expected[year.lower()] = {
            "spearman": spearman,
            "pearson": pearsonr(*together)[0],
            "spearman_mean": np.mean(of_parts),
            "spearman_wmean": np.average(of_parts, weights=sizes),
            "score": 100 * spearman,
        }
    benchmark = sts / "STS" / "STSBenchmark" / "sts-test.csv"
    sick = sts / "SICK" / "SICK_test_annotated.txt"
    for name, (first, second, scores) in {
        "sts-benchmark": table(benchmark, 5, 4, header=False),
        "sick-r": table(sick, 1, 3, header=True),
    }.items():
        cosines = reference.cosines(first, second)
        spearman = spearmanr(cosines, scores)[0]
        pearson = pearsonr(cosines, scores)[0]
        expected[name] = {"spearman": spearman, "pearson": pearson, "score": 100 * spearman}
    model = converted(source, tmp_path / "model").path
    result = zoo.evaluate(model, suite="sts", eval=sts, **FLOAT64)
    assert list(result.details["tasks"]) == list(expected)
    for name, metrics in expected.items():
        assert result.details["tasks"][name] == pytest.approx(metrics, abs=1e-5), name
    scores = [metrics["score"] for metrics in expected.values()]
    assert result.metrics["average"] == pytest.approx(np.mean(scores), abs=1e-4)
    limited = zoo.evaluate(model, suite="sts", eval=sts, tasks=["sick-r"], limit=5, **FLOAT64)
    first, second, scores = (values[:5] for values in table(sick, 1, 3, header=True))
    expected_spearman = spearmanr(reference.cosines(first, second), scores)[0]
    assert limited.metrics["average"] == pytest.approx(100 * expected_spearman, abs=1e-4)


def test_a_folder_that_lacks_files(hub_checkpoint: Make, sts: Path, tmp_path: Path) -> None:
    """What is missing is named, and the other tasks are evaluated."""
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    shutil.rmtree(sts / "STS" / "STS12-en-test")
    (sts / "STS" / "STS16-en-test" / "STS.gs.headlines.txt").unlink()
    (sts / "STS" / "STSBenchmark" / "sts-test.csv").unlink()
    result = warm.zoo("eval", model, "--suite", "sts", sts, "--json", "--backend", "cpu")
    assert result.returncode == 4
    assert f"sts12 is not evaluated: {sts} has no folder STS12-en-test" in result.stderr
    assert "has no STS.input.headlines.txt and STS.gs.headlines.txt" in result.stderr
    assert "sts-test.csv does not exist" in result.stderr
    tasks = json.loads(result.stdout)["tasks"]
    assert list(tasks) == ["sts13", "sts14", "sts15", "sick-r"]


def test_a_model_without_embeddings(hub_checkpoint: Make, sts: Path, tmp_path: Path) -> None:
    model = converted(hub_checkpoint("BertForTokenClassification"), tmp_path / "model").path
    with pytest.raises(UsageError, match="has the head token-classification, which serves"):
        zoo.evaluate(model, suite="sts", eval=sts, **FLOAT64)
