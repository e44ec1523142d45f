"""Exports of sentence encoders with modules, sparse encoders, late interaction and rerankers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.exporting.conftest import Exported
from tests.exporting.making import export_onnx, model, outputs
from tests.inference.conftest import converted
from tests.tasks.reranker.making import TEXTS
from zoo.api import load
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.errors import UsageError, VerificationError
from zoo.exporting.quantization.agreement import (
    Summary,
    agreement,
    make_samples,
    rank_correlation,
    summaries,
)
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.exporting.quantization.texts import read_texts
from zoo.inference.ort.runtime import create_session
from zoo.metrics.ranks import spearman

__all__ = ["hub_checkpoint"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")


POOLED = ("dense", "sparse", "late")
LONG_TEXTS: list[dict[str, Any]] = [
    {"doc_stride": 2},
    {"chunks": "tokens", "chunk_size": 4},
    {"chunks": "tokens", "chunk_size": 4, "late_chunking": True, "doc_stride": 2},
]


@pytest.mark.parametrize(
    "kind", ["cross-encoder", *(pytest.param(kind, marks=pytest.mark.long) for kind in POOLED)]
)
def test_an_export_computes_the_same(kind: str, hub_checkpoint: Make, tmp_path: Path) -> None:
    """In float32, and in 8 bits behind a gate that compares the ranking of retrieval models."""
    checkpoint = model(kind, hub_checkpoint, tmp_path)
    plan = QuantizationPlan(methods=(Quantization("int8"),), max_drop=0.5)
    export_onnx(checkpoint, tmp_path / "onnx", quantization=plan)
    exported = load_checkpoint(tmp_path / "onnx")
    check_digests(exported.path)
    np.testing.assert_allclose(
        outputs(exported, kind, "onnx"), outputs(checkpoint, kind, "cpu"), rtol=1e-4, atol=5e-5
    )
    described = json.dumps(exported.manifest.export)
    (copies,) = exported.manifest.export["quantized"].values()  # type: ignore[index]
    measure = "cosine" if kind == "dense" else "ranking"
    assert copies["agreement"]["measure"] == measure, described
    if measure == "ranking":
        drop = 1 - copies["agreement"]["ranking"]
        assert copies["agreement"]["drop"] == pytest.approx(drop) and drop < 0.5


@pytest.mark.parametrize("kind", ["score", "cosine"])
def test_a_graph_that_ranks_nothing_does_not_agree(kind: str) -> None:
    """Equal scores have no rank correlation, which must not pass for an agreement."""
    ids = np.zeros(4, np.int64)

    def side(*angles: float) -> list[Summary]:
        vectors = np.array([[np.cos(angle), np.sin(angle)] for angle in angles])
        return [Summary(vectors, ids, np.array(angles), np.empty(0))]

    various, equal = side(0.0, 0.3, 0.7, 1.2), side(0.5, 0.5, 0.5, 0.5)
    assert rank_correlation(various, various, kind) == pytest.approx(1)
    assert rank_correlation(various, equal, kind) == 0
    assert rank_correlation(equal, various, kind) is None


def test_the_ranking_is_spearman_s_of_the_library_s_similarities(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Between a model of late interaction and one whose outputs have noise."""
    checkpoint = model("late", hub_checkpoint, tmp_path)
    session = load(str(checkpoint.path), backend="cpu").session
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    samples = make_samples(checkpoint, TEXTS)
    rng = np.random.default_rng(0)

    def noisy(inputs: Any) -> Any:
        found = session.run(inputs)
        return {name: a + 0.5 * rng.standard_normal(a.shape) for name, a in found.items()}

    modules = checkpoint.model.pooling, checkpoint.module_weights()
    plain, other = (summaries(run, samples, spec, *modules) for run in (session.run, noisy))
    found = agreement(plain, other, spec, checkpoint)
    assert found.measure == "ranking" and found.ranking == rank_correlation(plain, other, "maxsim")
    tokens = [[t for s in side for t in s.token_vectors] for side in (plain, other)]
    scores = [np.array([[(q @ d.T).max(1).sum() for d in side] for q in side]) for side in tokens]
    rows = range(len(TEXTS))
    expected = [spearman(*(np.delete(side[row], row) for side in scores)) for row in rows]
    assert found.ranking == pytest.approx(np.mean(expected))
    assert agreement(plain, plain, spec, checkpoint).drop < 1e-12


def test_a_graph_reads_windows_and_passages(int8_encoder: Exported) -> None:
    checkpoint, export, _ = int8_encoder
    plain = load(str(checkpoint.path), backend="cpu")
    graph = load(str(export.path), backend="onnx")
    texts = ["the good day and a weak day " * 4, "the day"]
    for options in LONG_TEXTS:
        expected = plain.embed(texts, **options)
        np.testing.assert_allclose(graph.embed(texts, **options), expected, rtol=1e-4, atol=5e-5)


@pytest.mark.long
@pytest.mark.parametrize("kind", POOLED)
def test_a_pooled_graph(kind: str, hub_checkpoint: Make, tmp_path: Path) -> None:
    """It has the library's embeddings, and in 8 bits ranks alike; the plain graph is with it."""
    checkpoint = model(kind, hub_checkpoint, tmp_path)
    plan = QuantizationPlan(methods=(Quantization("int8"),), max_drop=0.5)
    dim = 5 if kind == "dense" else None
    export = tmp_path / "onnx"
    report = export_onnx(checkpoint, export, pooled=True, dim=dim, quantization=plan)
    exported = load_checkpoint(export)
    assert exported.is_export and report.pooled is not None
    np.testing.assert_allclose(
        outputs(exported, kind, "onnx"), outputs(checkpoint, kind, "cpu"), rtol=1e-4, atol=5e-5
    )
    assert_embeddings(kind, checkpoint, export / report.pooled.file, dim)
    assert_ranking(kind, checkpoint, export, report.pooled)


def assert_embeddings(kind: str, checkpoint: Checkpoint, file: Path, dim: int | None) -> None:
    """With the names of outputs that sentence-transformers and Transformers.js look for."""
    import onnxruntime

    assert file.parts[-2:] == ("onnx", "model_pooled.onnx")
    session = onnxruntime.InferenceSession(str(file))
    names = [output.name for output in session.get_outputs()]
    loaded = load(str(checkpoint.path), backend="cpu")
    encoded = loaded.tokenizer.encode(TEXTS, max_tokens=7)
    for text, tokens in zip(TEXTS, encoded, strict=True):
        ids = np.array([tokens.ids])
        inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        found = dict(zip(names, session.run(None, inputs), strict=True))
        if kind == "late":  # which leaves out the full stop
            assert names == ["token_embeddings"]
            compared = [token != "." for token in tokens.tokens]
            (expected,) = loaded.encode_document([text], prompt="")
            np.testing.assert_allclose(
                found["token_embeddings"][0][compared], expected, rtol=1e-4, atol=1e-4
            )
            continue
        assert names[-1] == "sentence_embedding"
        (row,) = loaded._run("embed", [text], arrays=True, dim=dim, max_tokens=7)
        np.testing.assert_allclose(
            found["sentence_embedding"][0], row["embedding"], rtol=1e-4, atol=1e-4
        )


def assert_ranking(kind: str, checkpoint: Checkpoint, export: Path, pooled: Any) -> None:
    """The gate is Spearman's correlation of the similarities that the written graphs give."""
    copies = pooled.quantized["int8"]
    (file,) = copies.graphs
    assert file == "onnx/model_pooled_quantized.onnx" and copies.bytes < copies.bytes_before
    found = copies.agreement
    assert found.measure == "ranking" and found.ranking is not None and found.cosine is not None
    assert found.drop == pytest.approx(1 - min(found.ranking, found.cosine)) and found.drop < 0.5
    samples = make_samples(checkpoint, read_texts(None))
    sides = []
    for name in (pooled.file, file):
        session = create_session(export / name)  # with exact products of integers
        output = session.get_outputs()[-1].name
        rows: list[Any] = []
        for sample in samples:
            values = session.run([output], dict(sample.inputs))[0].astype(np.float64)
            rows += [
                v[m] if kind == "late" else v for v, m in zip(values, sample.mask, strict=True)
            ]
        sides.append(rows)
    similarity: Any = {
        "dense": lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b),
        "sparse": lambda a, b: a @ b,
        "late": lambda a, b: (a @ b.T).max(1).sum(),
    }[kind]
    scores = [np.array([[similarity(q, d) for d in side] for q in side]) for side in sides]
    texts = range(len(sides[0]))
    each = [spearman(*(np.delete(side[row], row) for side in scores)) for row in texts]
    assert found.ranking == pytest.approx(np.mean(each), abs=1e-3)


@pytest.mark.long
def test_only_8_bits_of_a_pooled_graph(hub_checkpoint: Make, tmp_path: Path) -> None:
    checkpoint = model("dense", hub_checkpoint, tmp_path)
    plan = QuantizationPlan(methods=(Quantization("int8"),), max_drop=0.5)
    settings: dict[str, Any] = {"pooled": True, "quantization": plan, "only": "int8"}
    report = export_onnx(checkpoint, tmp_path / "onnx", **settings)
    names = sorted(path.name for path in (tmp_path / "onnx" / "onnx").iterdir())
    assert names == ["model_pooled_quantized.onnx", "model_quantized.onnx"]
    assert report.pooled is not None and not report.pooled.kept
    lines = [line for line in report.lines() if "pooled" in line]
    assert lines[0].endswith("not kept") and lines[1].startswith("pooled int8 (dynamic): ")
    check_digests(tmp_path / "onnx")


@pytest.mark.long
def test_8_bits_of_a_pooled_graph_that_do_not_agree(hub_checkpoint: Make, tmp_path: Path) -> None:
    checkpoint = model("dense", hub_checkpoint, tmp_path)
    plan = QuantizationPlan(methods=(Quantization("int8"),), max_drop=0.0)
    settings: dict[str, Any] = {"pooled": True, "quantization": plan, "only": "int8"}
    with pytest.raises(VerificationError, match="nothing was written"):
        export_onnx(checkpoint, tmp_path / "strict", **settings)
    assert not (tmp_path / "strict").exists()


def test_a_cut_above_the_width_is_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    checkpoint = model("dense", hub_checkpoint, tmp_path)
    with pytest.raises(UsageError, match="cut at 9 numbers; the model's embeddings have 8"):
        export_onnx(checkpoint, tmp_path / "onnx", pooled=True, dim=9)
    with pytest.raises(UsageError, match="--dim cuts the embeddings of a pooled graph"):
        export_onnx(checkpoint, tmp_path / "onnx", dim=4)
    plain = converted(hub_checkpoint("BertModel", "other"), tmp_path / "plain")
    with pytest.raises(UsageError, match="does not say how it makes embeddings"):
        export_onnx(plain, tmp_path / "onnx", pooled=True)
    assert not (tmp_path / "onnx").exists()
