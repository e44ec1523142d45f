"""Teachers on ONNX Runtime and in other dtypes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.distillation.making import distill, make_setup, narrow, pretrained, settings
from tests.exporting.making import export_onnx
from tests.finetuning.making import SETTINGS, finetune, labelled
from tests.finetuning.making import settings as finetune_settings
from tests.once import written_once
from tests.training.runs import records
from zoo.checkpoint import load_checkpoint
from zoo.distillation.teachers.onnx_teacher import UnpackedTexts
from zoo.distillation.teachers.teacher import MovedOutput
from zoo.errors import UsageError
from zoo.training.build import prepare_run
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext

KL = {"kl": {"kind": "kl", "positions": "all"}, "predicted": {"kind": "kl", "temperature": 2.0}}
NO_COSINE = {"cosine": {"kind": "hidden-cosine", "weight": 0.0}}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture(scope="module")
def graph() -> Path:
    """The export of a teacher."""
    teacher = load_checkpoint(pretrained("bert"))
    return written_once("teacher-graph", lambda path: export_onnx(teacher, path / "bert")) / "bert"


def on_onnx(teacher: Path, student: str, **changes: Any) -> dict[str, Any]:
    more = {"distillation": {"teacher_backend": "onnx", "terms": {**KL, **NO_COSINE}}}
    return settings(teacher, student, **deep_merge({"max_steps": 4}, more, changes))


def assert_same_losses(first: Path, second: Path) -> None:
    for split in ("train", "validation"):
        for record, other in zip(records(first, split), records(second, split), strict=True):
            # the divergence of similar models is a small difference of large numbers
            assert record["losses"] == pytest.approx(other["losses"], rel=1e-4, abs=1e-6)


def test_losses_are_those_of_torch(graph: Path, tmp_path: Path) -> None:
    """Of packed rows of several documents, which the graph reads as texts."""
    lines = {"data": {"reader": {"document_separator": "line"}}}
    trees = [
        on_onnx(
            model,
            "distilbert",
            distillation={"init_layers": None, "teacher_backend": backend},
            **lines,
        )
        for model, backend in ((graph, "onnx"), (pretrained("bert"), "cpu"))
    ]
    loader = make_setup(trees[1]).train_dataloader(DistContext.initialize("cpu"))
    # Some rows have several documents.
    batches = [batch for step in range(4) for batch in loader.make_batches(step)]
    assert max(batch.tensors["document_ids"].max() for batch in batches) > 1
    loader.close()
    runs = [distill(tmp_path / str(number), tree) for number, tree in enumerate(trees)]
    assert_same_losses(*runs)


@pytest.mark.long
def test_a_classifier_is_exported_on_first_use_and_cached(tmp_path: Path) -> None:
    file = labelled(tmp_path / "table.jsonl")
    finetune(tmp_path / "t", finetune_settings(pretrained("bert"), file, max_steps=2))
    runs: list[Path] = []
    for backend, cache in (("onnx", None), ("onnx", str(tmp_path / "cache")), ("auto", None)):
        distillation = {
            "teachers": [str(tmp_path / "t" / "model")],
            "recipe": "logits",
            "teacher_backend": backend,
            "cache_teacher": cache,
        }
        tree = deep_merge(
            SETTINGS,
            {
                "task": "text-classification",
                "max_steps": 4,
                "data": {"train": [str(file)]},
                "student": narrow("distilbert"),
                "distillation": distillation,
            },
        )
        runs.append(distill(tmp_path / f"run-{len(runs)}", tree))
    assert_same_losses(runs[0], runs[2])
    assert_same_losses(runs[1], runs[2])


def test_rows_are_unpacked_into_their_documents() -> None:
    documents = torch.tensor([[1, 1, 1, 2, 0, 0], [1, 2, 2, 2, 2, 3]])
    texts = UnpackedTexts.of({"document_ids": documents, "input_ids": documents})
    assert texts.starts.tolist() == [0, 3, 6, 7, 11]
    assert texts.lengths.tolist() == [3, 1, 1, 4, 1]
    tokens, index = texts.padded([3, 0])
    assert tokens.tolist() == [[True] * 4, [True] * 3 + [False]]
    assert index.tolist() == [[7, 8, 9, 10], [0, 1, 2, 0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terms": {"cosine": {"weight": 1}}}, "the term cosine compares hidden-cosine, but a t"),
        ({"recipe": "minilm", "terms": {}}, "the term attention compares attention-kl"),
        ({"teacher_dtype": "bfloat16"}, "computes in float32 or float16"),
        ({"teacher_dtype": "float16"}, "is a graph in float32, not float16"),
        ({"teacher_backend": "auto"}, "is an ONNX graph; --teacher-backend onnx runs it"),
        ({"init_layers": "spread"}, "init_layers=null starts with new weights"),
        ({"teacher_dtype": "float8"}, "float8"),
        ({"teacher_backend": "tpu"}, "tpu"),
    ],
)
def test_what_a_graph_does_not_give_is_refused(
    graph: Path, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    distillation = deep_merge({"init_layers": None}, changes)
    tree = on_onnx(graph, "distilbert", distillation=distillation)
    if "recipe" in changes:
        tree["distillation"]["terms"] = {}
    with pytest.raises(UsageError, match=message):
        distill(tmp_path / "run", tree)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.long)])
def test_a_teacher_of_lower_precision(dtype: str, tmp_path: Path) -> None:
    """All kinds of terms accept it, and the student begins with weights in full precision."""
    terms = {
        "hidden": {"kind": "hidden-mse", "embeddings": True, "layers": "uniform"},
        "attention": {"kind": "attention-mse", "layers": "last"},
        "queries": {"kind": "attention-kl", "layers": "last"},
        "relations": {"kind": "relations"},
        "logits": {"kind": "logits-mse"},
    }
    trees = [
        settings(
            pretrained("bert"),
            "distilbert",
            distillation={"terms": terms, "teacher_dtype": kind},
            student=NO_DROPOUT,
            max_steps=2,
        )
        for kind in ("float32", dtype)
    ]
    runs = [distill(tmp_path / str(k), tree) for k, tree in enumerate(trees)]
    first, second = (records(run)[0]["losses"] for run in runs)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=0.05, abs=2e-3), name
    assert first != second
    setup = make_setup(trees[1])
    model: Any = setup.objective.model(setup.family, setup.model_config)
    setup.prepare_model(model)
    stored = load_file(pretrained("bert") / "model.safetensors")
    weight = model.student.state_dict()["embeddings.tokens.weight"]
    assert torch.equal(weight, stored["embeddings.tokens.weight"])


def test_results_of_another_device_are_moved(tmp_path: Path) -> None:
    setup = make_setup(settings(pretrained("bert"), "distilbert"))
    prepared = prepare_run(setup, tmp_path, DistContext.initialize("cpu"))
    batch = prepared.train_dataloader.batches(0)[0].tensors
    prepared.train_dataloader.close()
    view = setup.objective.teachers[0].forward(batch, {"hidden": {-1}, "queries_keys_values": {0}})
    moved = MovedOutput.to_device(view, torch.device("meta"))
    assert moved.captured.hidden[-1].shape == view.captured.hidden[-1].shape
    logits: Any = moved.logits("masked-lm", everywhere=True)
    tensors = [moved.captured.hidden[-1], *moved.captured.queries_keys_values[0], logits]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
