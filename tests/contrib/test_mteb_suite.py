"""MTEB as a suite of ``zoo eval``.

Where mteb is not installed, a module with the same functions and the same protocol of encoders
takes its place: it calls ``encode`` with batches of texts, and ``similarity_pairwise``.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import zoo
from tests import warm
from tests.checkpoints import Make, hub_checkpoint
from tests.contrib.sts import local_pairs
from tests.inference.conftest import converted
from tests.suites.reference import Reference
from zoo.errors import SourceError, UsageError
from zoo.plugins.suites import find_suite

__all__ = ["hub_checkpoint"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
FLOAT64: dict[str, Any] = {"backend": "cpu", "dtype": "float64"}
MAIN_SCORE = "cosine_spearman"
HAS_MTEB = importlib.util.find_spec("mteb") is not None


def pairs() -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefghij"), size)) for size in rng.integers(1, 9, 60)]
    return {"sentence1": texts[::2], "sentence2": texts[1::2], "score": rng.random(30).tolist()}


def make_stand_in() -> ModuleType:
    """Return a module with the functions that the suite calls."""
    columns = pairs()

    def get_task(name: str) -> Any:
        if name not in ("LocalPairs", "Unreachable"):
            raise KeyError(f"KeyError: '{name}' not found. Did you mean: 'LocalPairs'?")
        return SimpleNamespace(
            metadata=SimpleNamespace(name=name, type="STS", main_score=MAIN_SCORE)
        )

    def evaluate(model: Any, task: Any, *, cache: Any, raise_error: bool) -> Any:
        assert cache is None and raise_error
        if task.metadata.name == "Unreachable":
            raise ConnectionError("the Hub cannot be reached")

        def encode(texts: list[str]) -> Any:
            batches = [{"text": texts[start : start + 7]} for start in range(0, len(texts), 7)]
            place = {"hf_split": "test", "hf_subset": "default"}
            return model.encode(batches, task_metadata=task.metadata, **place, batch_size=7)

        similarity = model.similarity_pairwise(
            encode(columns["sentence1"]), encode(columns["sentence2"])
        )
        score = spearmanr(similarity, columns["score"])[0]
        return SimpleNamespace(task_results=[SimpleNamespace(get_score=lambda: score)])

    stand_in = ModuleType("mteb")
    vars(stand_in).update(get_task=get_task, evaluate=evaluate)
    return stand_in


@pytest.fixture
def mteb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring a task of local pairs into mteb, or into what takes its place."""
    if not HAS_MTEB:
        monkeypatch.setitem(sys.modules, "mteb", make_stand_in())
        return
    import mteb as module

    tasks = {"LocalPairs": local_pairs(pairs(), (0, 1))}
    get_task = module.get_task
    monkeypatch.setattr(module, "get_task", lambda name: tasks.get(name) or get_task(name))


@pytest.mark.usefixtures("mteb")
def test_the_main_score_of_a_task(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    model = converted(source, tmp_path / "model").path
    result = zoo.evaluate(model, suite="mteb", tasks="LocalPairs", eval=(), **FLOAT64)
    columns = pairs()
    cosines = Reference(source).cosines(columns["sentence1"], columns["sentence2"])
    expected = spearmanr(cosines, columns["score"])[0]
    assert result.details["tasks"]["LocalPairs"] == pytest.approx(
        {MAIN_SCORE: expected, "score": 100 * expected}, abs=1e-4
    )
    assert result.metrics["average"] == pytest.approx(100 * expected, abs=1e-4)
    wrong_calls: tuple[tuple[dict[str, Any], str], ...] = (
        ({"tasks": "LocalPair"}, r"MTEB has no task 'LocalPair'"),
        ({"tasks": ()}, "MTEB has hundreds of tasks"),
        ({"limit": 5}, "mteb evaluates complete tasks"),
        ({"eval": tmp_path}, "--suite mteb reads no folder"),
    )
    for changes, message in wrong_calls:
        call: dict[str, Any] = {"tasks": "LocalPairs", "eval": (), **changes}
        with pytest.raises(UsageError, match=message):
            zoo.evaluate(model, suite="mteb", **call, **FLOAT64)
    if not HAS_MTEB:
        with pytest.raises(SourceError, match="mteb cannot load Unreachable: the Hub cannot be"):
            zoo.evaluate(model, suite="mteb", tasks="Unreachable", eval=(), **FLOAT64)


@pytest.mark.skipif(HAS_MTEB, reason="mteb is installed")
def test_mteb_is_missing(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    done = warm.zoo("eval", model, "--suite", "mteb", "--tasks", "STS12")
    assert done.returncode == 2
    assert "--suite mteb takes the package mteb, which cannot be imported" in done.stderr
    assert "pip install mteb" in done.stderr


def test_a_folder_called_mteb_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mteb").mkdir()
    monkeypatch.delitem(sys.modules, "mteb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    if HAS_MTEB:
        (tmp_path / "mteb" / "__init__.py").write_text("")
    with pytest.raises(UsageError, match=r"version 2 of the package mteb, and .*mteb has no get_t"):
        find_suite("mteb").select_tasks(["STS12"])
    sys.modules.pop("mteb")
