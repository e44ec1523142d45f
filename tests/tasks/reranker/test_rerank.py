"""Sparse, late-interaction and cross-encoder models, against sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tests.checkpoints import Make
from tests.closeness import assert_same, assert_within, subtracted
from tests.inference.conftest import converted
from tests.tasks.reranker.making import QUERIES, TEXTS, both, dense, late, sparse
from tests.tasks.reranker.making import encoder as encoder
from zoo.api import Model, load
from zoo.cli.inference.run import command
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.hub.upload.plan import PLACEHOLDER

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")


def similarities(theirs: Any) -> np.ndarray[Any, Any]:
    """Return the similarities that the library computes, (queries, texts)."""
    found = theirs.similarity(theirs.encode_query(QUERIES), theirs.encode_document(TEXTS))
    return np.asarray(found.to_dense() if found.is_sparse else found)


def exact_similarities(theirs: Any) -> np.ndarray[Any, Any]:
    """Return the similarities of the library, (queries, texts), in the dtype of its embeddings."""
    from sentence_transformers import SparseEncoder

    queries, texts = theirs.encode_query(QUERIES), theirs.encode_document(TEXTS)
    if theirs.similarity_fn_name in ("maxsim", "meanmaxsim"):  # the library rounds to float32
        rows = [[(query @ text.T).amax(1) for text in texts] for query in queries]
        mean = theirs.similarity_fn_name == "meanmaxsim"
        return np.array([[float(v.mean() if mean else v.sum()) for v in row] for row in rows])
    if isinstance(theirs, SparseEncoder):
        queries, texts = queries.to_dense(), texts.to_dense()
        if theirs.similarity_fn_name == "dot":  # the same
            return np.asarray(queries @ texts.T)
    return np.asarray(theirs.similarity(queries, texts))


def assert_ranked_as(ours: Model, theirs: Any) -> None:
    """Check rerank and search against the similarities of the library, in float32 and float64."""
    for dtype in ("float32", "float64"):
        if dtype == "float64":
            ours = load(str(ours.checkpoint.path), backend="cpu", dtype=dtype)
            theirs = theirs.double()
        found = ours.search(QUERIES, TEXTS, top_k=4)
        size = subtracted(theirs.encode_document(TEXTS), theirs.similarity_fn_name)
        for query, scores, row in zip(QUERIES, exact_similarities(theirs), found, strict=True):
            ranked = ours.rerank(query, TEXTS)
            assert sorted(entry["corpus_id"] for entry in ranked) == list(range(len(TEXTS)))
            assert [TEXTS[entry["corpus_id"]] for entry in ranked] == [e["text"] for e in ranked]
            best = np.array(sorted(scores, reverse=True))
            assert_same([e["score"] for e in ranked], best, dtype, size=size)
            own = [scores[entry["corpus_id"]] for entry in ranked]
            assert_same([e["score"] for e in ranked], own, dtype, size=size)
            assert_same([e["score"] for e in row["results"]], best[:4], dtype, size=size)
            assert row["text"] == query and len(ours.rerank(query, TEXTS, top_k=2)) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "activation", "similarity", "largest"),
    [
        ("max", "relu", None, None),
        ("sum", "log1p_relu", "dot", 5),
        ("max", "log1p_relu", "cosine", None),
    ],
)
def test_sparse_encoders(
    hub_checkpoint: Make,
    tmp_path: Path,
    strategy: str,
    activation: str,
    similarity: str | None,
    largest: int | None,
) -> None:
    theirs = sparse(
        hub_checkpoint,
        strategy=strategy,
        activation=activation,
        similarity_fn_name=similarity,
        max_active_dims=largest,
    )
    ours, back = both(theirs, tmp_path)
    expected = theirs.encode(TEXTS).to_dense().numpy()
    assert ours.checkpoint.head_name == "masked-lm" and np.count_nonzero(expected)
    assert_same(ours.embed(TEXTS), expected)
    assert_within(back.encode(TEXTS).to_dense(), expected)
    assert_within(similarities(back), similarities(theirs))
    assert (back.similarity_fn_name, back.max_active_dims) == (similarity or "dot", largest)
    assert_ranked_as(ours, theirs)
    with pytest.raises(UsageError, match="has weights of words, which are not cut"):
        ours.embed(TEXTS, dim=5)
    words = dict(theirs.decode(theirs.encode(TEXTS[:1]))[0])
    (named,) = [json.loads(line) for line in run("embed", tmp_path / "model", TEXTS[0])]
    assert named["embedding"] == pytest.approx(words, rel=1e-5)
    weights = list(named["embedding"].values())
    assert weights == sorted(weights, reverse=True)


@pytest.mark.by_default("expansion2-meanmaxsim")
@pytest.mark.parametrize(
    ("expansion", "similarity"),
    [
        (None, "maxsim"),
        ({"strategy": "fixed", "length": 9, "attend": False}, "maxsim"),
        ({"strategy": "min", "length": 9, "attend": True, "token": "b"}, "meanmaxsim"),
    ],
)
def test_late_interaction(
    hub_checkpoint: Make, tmp_path: Path, expansion: Any, similarity: str
) -> None:
    theirs = late(hub_checkpoint, expansion=expansion, similarity_fn_name=similarity)
    ours, back = both(theirs, tmp_path)
    for name in ("encode_query", "encode_document"):
        expected = getattr(theirs, name)(TEXTS, convert_to_numpy=True)
        found = getattr(ours, name)(TEXTS)
        again = getattr(back, name)(TEXTS, convert_to_numpy=True)
        for one, other, returned in zip(found, expected, again, strict=True):
            assert_same(one, other)
            assert_within(returned, other)
    assert_within(similarities(back), similarities(theirs))
    assert_ranked_as(ours, theirs)
    with pytest.raises(UsageError, match="an embedding for each token, and none of a text"):
        ours.embed(TEXTS)
    with pytest.raises(UsageError, match="an embedding for each token, which are not pooled"):
        ours.rerank(TEXTS[0], TEXTS, doc_stride=1)


@pytest.mark.by_default("cosine")
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_sentence_encoders(hub_checkpoint: Make, tmp_path: Path, similarity: str) -> None:
    theirs = dense(hub_checkpoint, similarity_fn_name=similarity, truncate_dim=24)
    ours, back = both(theirs, tmp_path)
    expected = theirs.encode_query(TEXTS)
    assert_same(ours.encode_query(TEXTS), expected)
    assert_within(back.encode_query(TEXTS), expected)
    assert_within(similarities(back), similarities(theirs))
    expected = theirs.encode_document(TEXTS, normalize_embeddings=True)
    assert_same(ours.encode_document(TEXTS, normalize_embeddings=True), expected)
    assert_ranked_as(ours, theirs)


@pytest.mark.long
def test_prompts_of_queries_and_texts(hub_checkpoint: Make, tmp_path: Path) -> None:
    """Models such as E5 need them, and do not all have them in their files."""
    theirs = dense(hub_checkpoint)
    ours, _ = both(theirs, tmp_path)
    texts = theirs.encode_document(TEXTS, prompt_name="query")
    expected = np.asarray(theirs.similarity(theirs.encode_query(QUERIES, prompt="j "), texts))
    options: dict[str, Any] = {"prompt": "j ", "corpus_prompt_name": "query"}
    found = ours.search(QUERIES, TEXTS, **options)
    for query, row, scores in zip(QUERIES, found, expected, strict=True):
        for results in (row["results"], ours.rerank(query, TEXTS, **options)):
            order = [entry["corpus_id"] for entry in results]
            assert_same([entry["score"] for entry in results], scores[order])
    with pytest.raises(UsageError, match=r"no prompt 'qury': .*; did you mean query"):
        ours.search(QUERIES, TEXTS, corpus_prompt_name="qury")
    with pytest.raises(UsageError, match="a name or a text, and not both"):
        ours.rerank("a", TEXTS, corpus_prompt_name="query", corpus_prompt="a")


@pytest.mark.by_default("Sigmoid")
@pytest.mark.parametrize("activation", ["Identity", "Sigmoid"])
def test_cross_encoders(hub_checkpoint: Make, tmp_path: Path, activation: str) -> None:
    from sentence_transformers import CrossEncoder

    source = hub_checkpoint("BertForSequenceClassification", num_labels=1)
    function = getattr(torch.nn, activation)()
    theirs = CrossEncoder(str(source), activation_fn=function, device="cpu")
    theirs.save(str(tmp_path / "hub"), create_model_card=False)
    checkpoint = converted(tmp_path / "hub", tmp_path / "model")
    convert(CheckpointDir(checkpoint.path, "model"), tmp_path / "back", to="hub")
    ours = load(str(checkpoint.path), backend="cpu")
    back = CrossEncoder(str(tmp_path / "back"), device="cpu")
    for query in QUERIES:
        expected = theirs.rank(query, TEXTS, return_documents=True)
        again = back.rank(query, TEXTS)
        assert_within([e["score"] for e in again], [e["score"] for e in expected])
        assert_same([e["score"] for e in ours.rerank(query, TEXTS)], [e["score"] for e in expected])
    ours, theirs = load(str(checkpoint.path), backend="cpu", dtype="float64"), theirs.double()
    pairs = [(query, text) for query in QUERIES for text in TEXTS]
    logits = theirs.predict(pairs, activation_fn=torch.nn.Identity(), convert_to_tensor=True)
    found = [entry["score"] for entry in ours.classify(pairs)]
    assert_same(found, function(logits), "float64")
    with pytest.raises(UsageError, match="with a prompt before the query; leave the prompt of the"):
        ours.rerank("a", TEXTS, corpus_prompt="b ")
    with pytest.raises(UsageError, match="text 1 is one text, and the model compares two"):
        ours.classify(["a b"])
    with pytest.raises(
        UsageError, match=r"is a cross-encoder, .*; `zoo run rerank` sorts the texts"
    ):
        ours.search(["a"], ["b"])


def test_a_classifier_of_several_labels_is_not_a_reranker(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source = hub_checkpoint("BertForSequenceClassification", num_labels=3)
    ours = load(str(converted(source, tmp_path / "model").path), backend="cpu")
    with pytest.raises(UsageError, match="has 3 labels, and a reranker one"):
        ours.rerank("a", ["b"])


def run(*arguments: Any, code: int = 0) -> list[str]:
    """Run ``zoo run``, and return the lines that it writes."""
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if code and isinstance(result.exception, UsageError):
        return [str(result.exception)]
    assert result.exit_code == code, (result.output, result.exception)
    return result.output.splitlines() if code else result.stdout.splitlines()


@pytest.mark.long
def test_the_commands(encoder: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps({"_id": f"d{k}", "text": text}) + "\n" for k, text in enumerate(TEXTS))
    )
    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(QUERIES) + "\n")
    model = load(str(encoder), backend="cpu")
    ranked = run("rerank", encoder, "--query", QUERIES[0], "--input", corpus, "--top-k", 2)
    rows = [json.loads(line) for line in ranked]
    expected = model.rerank(QUERIES[0], TEXTS, top_k=2)
    assert [{k: v for k, v in row.items() if k != "_id"} for row in rows] == expected
    assert [row["_id"] for row in rows] == [f"d{row['corpus_id']}" for row in rows]
    found = run("search", encoder, "--corpus", corpus, "--queries", queries, "--top-k", 3)
    expected = model.search(QUERIES, TEXTS, top_k=3)
    for line, row in zip(found, expected, strict=True):
        results = [{k: v for k, v in e.items() if k != "_id"} for e in json.loads(line)["results"]]
        assert {**json.loads(line), "results": results} == row
    output = tmp_path / "ranked.csv"
    run("rerank", encoder, "--query", QUERIES[0], "--input", corpus, "-o", output)
    assert len(output.read_text().splitlines()) == 1 + len(TEXTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rerank", "a text"), "rerank sorts texts by a query; give --query TEXT"),
        (("search", "a query"), "search needs texts to search; give --corpus FILE"),
        (("search", "a", "--corpus", "missing.txt"), "missing.txt"),
    ],
)
def test_what_is_missing_is_one_line(
    encoder: Path, arguments: tuple[str, ...], message: str
) -> None:
    verb, *others = arguments
    (line,) = run(verb, encoder, *others, code=2)[-1:]
    assert message in line


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "name"), [(sparse, "SparseEncoder"), (late, "MultiVectorEncoder")]
)
def test_the_card_names_the_class_that_opens_the_model(
    hub_checkpoint: Make, tmp_path: Path, make: Any, name: str
) -> None:
    both(make(hub_checkpoint), tmp_path)
    card = (tmp_path / "back" / "README.md").read_text("utf-8")
    assert f"from sentence_transformers import {name}\n" in card
    (snippet,) = (part for part in card.split("```python\n") if part.startswith("from sentence"))
    code = snippet.partition("```")[0].replace(PLACEHOLDER, str(tmp_path / "back"))
    exec(compile(code, name, "exec"), {})
