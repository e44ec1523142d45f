"""Runs with a cache of the teacher's outputs: equal losses, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.distillation.making import (
    assert_resumes_exactly,
    distill,
    make_setup,
    narrow,
    pretrained,
    settings,
)
from tests.finetuning.making import SETTINGS, finetune, labelled
from tests.finetuning.making import settings as finetune_settings
from tests.inference.making import write_manifest
from tests.training.runs import assert_same, finish_in_two_processes, records
from zoo.data.cache import SAMPLE
from zoo.distillation.runs import DistillRun
from zoo.distillation.teachers.cached_teacher import CachedTeacher
from zoo.distillation.teachers.teacher_cache import TeacherCache
from zoo.errors import UsageError, VerificationError
from zoo.objectives.base import ExampleDataset
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.trainer import Trainer

LOST = "kl-lost-probability"
Tree = dict[str, Any]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text of some 17 rows, which 12 steps of 4 rows read three times."""
    path = tmp_path / "text.txt"
    path.write_text((SAMPLE / "alice.txt").read_text()[2000:4500])
    return path


def causal(text: Path, cache: Path | None, **changes: Any) -> Tree:
    distillation = {
        "recipe": "logits",
        "cache_top_k": 20,
        "cache_teacher": None if cache is None else str(cache),
    }
    more = {"data": {"paths": [str(text)]}, "distillation": distillation}
    return deep_merge(settings(pretrained("gpt"), "gpt", **more), changes)


def masked(text: Path, cache: Path | None, **changes: Any) -> Tree:
    terms = {
        "kl": {"kind": "kl", "positions": "all"},
        "predicted": {"kind": "kl", "temperature": 3.0},
        "cosine": {"kind": "hidden-cosine", "weight": 0},
    }
    more = {
        "objective_args": {"mask_schedule": "static"},
        "data": {"paths": [str(text)]},
        "distillation": {"terms": terms, "cache_teacher": None if cache is None else str(cache)},
    }
    return deep_merge(settings(pretrained("bert"), "distilbert", **more), changes)


def table(text: Path, cache: Path | None, **changes: Any) -> Tree:
    """Return the settings of a classifier, whose logits are kept whole."""
    folder = text.parent
    file = folder / "table.jsonl"
    if not file.exists():
        tree = finetune_settings(pretrained("bert"), labelled(file), max_steps=2)
        finetune(folder / "teacher", tree)
    return deep_merge(
        SETTINGS,
        {
            "task": "text-classification",
            "data": {"train": [str(file)]},
            "student": narrow("distilbert"),
            "distillation": {
                "teachers": [str(folder / "teacher" / "model")],
                "recipe": "logits",
                "cache_teacher": None if cache is None else str(cache),
            },
        },
        changes,
    )


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each forward pass for missing outputs adds an element."""
    counted, add = list[int](), CachedTeacher._add

    def counting(*arguments: Any) -> Any:
        counted.append(1)
        return add(*arguments)

    monkeypatch.setattr(CachedTeacher, "_add", counting)
    return counted


LONG = pytest.mark.long  # The cache has the logits of rows, whatever the objective is.
TREES = [pytest.param(causal, marks=LONG), masked, pytest.param(table, marks=LONG)]


@pytest.mark.parametrize("make", TREES)
def test_a_cold_a_warm_and_a_resumed_run_are_the_same(
    make: Callable[..., Tree],
    text: Path,
    tmp_path: Path,
    passes: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = make(text, tmp_path / "cache")
    cold = distill(tmp_path / "cold", tree)
    assert 0 < len(passes) < 12 * 2 + 2  # micro-batches, and those of one evaluation
    passes.clear()
    warm = distill(tmp_path / "warm", tree)
    assert not passes
    assert_same(cold, warm)
    shutil.rmtree(tmp_path / "cache")
    broken = kill_after(7, tree, tmp_path / "broken", monkeypatch)
    DistillRun({}, DistContext.initialize("cpu")).resume(broken)
    assert passes
    assert_same(cold, broken)


def kill_after(step: int, tree: Tree, run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train a run that ends after a step, with what a killed process leaves of its cache."""
    train_step, close = Trainer.train_step, TeacherCache.close

    def killed(trainer: Trainer, batches: Any) -> Any:
        if trainer.step == step:
            raise InterruptedError
        return train_step(trainer, batches)

    def closed(cache: TeacherCache) -> None:
        cache._pending = {}
        close(cache)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", killed)
        patch.setattr(TeacherCache, "close", closed)
        with pytest.raises(InterruptedError):
            distill(run, tree)
    return run


@pytest.mark.long  # the runs of the test above are cold, warm and resumed
def test_a_run_that_reads_a_full_cache_resumes_exactly(text: Path, tmp_path: Path) -> None:
    tree = causal(text, tmp_path / "cache")
    assert_resumes_exactly(tmp_path, tree, 3)


@pytest.mark.long
@pytest.mark.parametrize("make", TREES)
def test_whole_logits_give_the_losses_of_a_run_without_a_cache(
    make: Callable[..., Tree], text: Path, tmp_path: Path
) -> None:
    few = {"max_steps": 6, "distillation": {"cache_top_k": 10**6}}
    runs = [
        distill(tmp_path / str(number), make(text, cache, **few))
        for number, cache in enumerate((tmp_path / "cache", None))
    ]
    for split in ("train", "validation"):
        for record, other in zip(*(records(run, split) for run in runs), strict=True):
            assert record["losses"] == pytest.approx(other["losses"], abs=1e-5)
            assert LOST not in record["metrics"]


@pytest.mark.long
def test_the_lost_probability_is_logged_and_falls_with_more_logits(
    text: Path, tmp_path: Path
) -> None:
    lost, losses = [], []
    for top_k in (5, 50):
        changes = {"max_steps": 1, "distillation": {"cache_top_k": top_k}}
        run = distill(tmp_path / f"r{top_k}", causal(text, tmp_path / f"c{top_k}", **changes))
        lost.append(records(run)[0]["metrics"][LOST])
        losses.append(records(run)[0]["losses"]["kl"])
    assert 1 > lost[0] > lost[1] > 0
    assert 0 < losses[0] < losses[1]  # a bound from below


@pytest.mark.long  # the trainer's part is that of runs without a cache
def test_two_processes_equal_one(text: Path, tmp_path: Path) -> None:
    tree = causal(text, tmp_path / "cache", max_steps=8)
    single, parallel, file = tmp_path / "one", tmp_path / "two", tmp_path / "run.yaml"
    distill(single, tree)
    shutil.rmtree(tmp_path / "cache")
    file.write_text(yaml.safe_dump(tree))
    finish_in_two_processes("distill", str(file), "-o", str(parallel))
    assert {path.name for path in (tmp_path / "cache").glob("*.bin")} == {
        "outputs-0.bin",
        "outputs-1.bin",
    }
    for split in ("train", "validation"):
        for record, other in zip(records(parallel, split), records(single, split), strict=True):
            assert record["losses"] == pytest.approx(other["losses"], abs=1e-5)


@pytest.mark.long
def test_logits_and_embeddings_are_in_one_cache(text: Path, tmp_path: Path) -> None:
    terms = {"distillation": {"terms": {"text": {"kind": "sentence-mse"}}}}
    tree = masked(text, tmp_path / "cache", **terms)
    without = deep_merge(tree, {"distillation": {"cache_teacher": None}})
    plain, cold, warm = (
        records(distill(tmp_path / name, settings))
        for name, settings in (("plain", without), ("cold", tree), ("warm", tree))
    )
    assert [record["losses"] for record in cold] == [record["losses"] for record in warm]
    # Later steps follow the divergence of the logits that are kept.
    assert cold[0]["losses"]["text"] == pytest.approx(plain[0]["losses"]["text"], rel=1e-6)
    header = json.loads((tmp_path / "cache" / "outputs-0.json").read_text())["header"]
    assert {name.partition(":")[0] for name in header["outputs"]} == {"logits", "embeddings"}


@pytest.mark.by_default("causal-changes2", "table-changes5")
@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (masked, {"objective_args": {"mask_schedule": "dynamic"}}, "mask_schedule=static"),
        (
            masked,
            {"distillation": {"terms": {"cosine": {"weight": 1}}}},
            "the term cosine compares hidden-cosine, whose tensors are too large to cache",
        ),
        (
            causal,
            {"distillation": {"terms": {"kl": {"kind": "logits-mse"}}}},
            "the term kl compares all 400 logits, and the cache only keeps 20",
        ),
        (causal, {"distillation": {"cache_top_k": 0}}, "cache_top_k is 0"),
        (causal, {"compile": True}, "compile=true"),
        (table, {"task_args": {"doc_stride": 2}}, "texts are read in windows"),
    ],
)
def test_runs_to_which_a_cache_does_not_apply(
    make: Callable[..., Tree], changes: Tree, message: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        distill(tmp_path / "run", make(text, tmp_path / "cache", **changes))
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.long
def test_two_teachers_have_a_cache_each(text: Path, tmp_path: Path, passes: list[int]) -> None:
    """Cold and warm runs have the losses of a run without; of few logits, there is no mean."""
    few, cache = {"max_steps": 3, "eval_steps": 3, "save_steps": 3}, tmp_path / "cache"
    plain = table(text, None, **few)
    other = finetune_settings(pretrained("bert"), text.parent / "table.jsonl", max_steps=2, seed=5)
    teachers = [*plain["distillation"]["teachers"], str(finetune(tmp_path / "b", other) / "model")]
    both = {"distillation": {"teachers": teachers}}
    runs = [distill(tmp_path / "plain", deep_merge(plain, both))]
    for name in ("cold", "warm"):
        passes.clear()
        runs.append(distill(tmp_path / name, table(text, cache, **few, **both)))
    assert not passes
    assert {path.name for path in cache.iterdir()} == {"teacher-1", "teacher-2"}
    losses = [[record["loss"] for record in records(run)] for run in runs]
    assert losses[1] == losses[2] == pytest.approx(losses[0], abs=1e-6)
    several = {"distillation": {"teachers": [str(pretrained("gpt"))] * 2}}
    with pytest.raises(UsageError, match="averaged over all 400 classes, and the cache keeps"):
        distill(tmp_path / "run", causal(text, tmp_path / "other", **several))


def test_a_cache_of_another_teacher_is_refused(text: Path, tmp_path: Path) -> None:
    cache, few = tmp_path / "cache", {"max_steps": 1}
    distill(tmp_path / "run", causal(text, cache, **few))
    other = {"distillation": {"teachers": [str(pretrained("gpt", seed=7))]}}
    with pytest.raises(UsageError, match=f"from another teacher; delete {cache}"):
        distill(tmp_path / "other", causal(text, cache, **few, **other))
    assert not (tmp_path / "other").exists()


@pytest.mark.long
def test_a_cache_of_a_teacher_with_another_configuration_is_refused(
    text: Path, tmp_path: Path
) -> None:
    """The weights are the same; pooling and tokenizer are in the same file."""
    distill(tmp_path / "run", causal(text, tmp_path / "cache", max_steps=1))
    teacher = shutil.copytree(pretrained("gpt"), tmp_path / "teacher")
    record = json.loads((teacher / "config.json").read_text())
    record["config"]["dropout"] = 0.25
    (teacher / "config.json").write_text(json.dumps(record))
    write_manifest(teacher)
    tree = causal(text, tmp_path / "cache")
    tree["distillation"]["teachers"] = [str(teacher)]
    with pytest.raises(UsageError, match="is from another teacher; delete"):
        distill(tmp_path / "other", tree)


def test_records_of_another_length_are_refused(text: Path, tmp_path: Path) -> None:
    """An empty record would be a teacher without outputs, whose loss is 0."""
    tree = causal(text, tmp_path / "cache", max_steps=1)
    distill(tmp_path / "run", tree)
    (teacher,) = make_setup(tree).objective.teachers
    assert isinstance(teacher, CachedTeacher)
    cache = teacher.cache
    cache.open(0)
    cache.close()
    shutil.rmtree(tmp_path / "cache")
    records = cache._records
    keys = [records._map[at : at + 16].tobytes() for at in records._index._recent.values()]
    cache.open(0)
    for key in keys:
        cache.add(key, np.zeros(0, np.uint8))
    cache.close()
    with pytest.raises(VerificationError, match="a record has 0 bytes for"):
        distill(tmp_path / "other", tree)


@pytest.mark.long
def test_a_cache_of_another_precision_is_refused(text: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    distill(tmp_path / "run", causal(text, cache, max_steps=1, precision="bfloat16"))
    with pytest.raises(UsageError, match=f"is for dtype bfloat16, not float32; delete {cache}"):
        distill(tmp_path / "other", causal(text, cache, max_steps=1, precision="float32"))


def test_static_masks_are_those_of_the_row(text: Path) -> None:
    setup = make_setup(masked(text, None))
    rows = setup.train_dataloader(DistContext.initialize("cpu"))
    epochs = {
        tuple(example.arrays["input_ids"].tolist())
        for step in range(12)
        for example in rows._rows(step, range(4))
    }
    rows.close()
    assert isinstance(rows.dataset, ExampleDataset)
    assert len(epochs) == len(rows.dataset)
