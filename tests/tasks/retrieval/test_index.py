"""Search of stored vectors, against ``semantic_search`` of sentence-transformers."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from numpy.typing import NDArray

from tests import warm
from tests.checkpoints import Make
from tests.inference.conftest import Small, converted
from tests.tasks.retrieval.test_search import QUERIES, TEXTS, modules_after
from zoo.api import Model
from zoo.errors import UsageError, VerificationError, ZooError
from zoo.io.paths import home
from zoo.tasks.retrieval.index import open_index

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")


@pytest.fixture
def model(small: Small) -> Model:
    return small("BertModel")[0]


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    path = tmp_path / "articles.csv"
    with path.open("w", newline="") as file:
        numbered = [[k, text] for k, text in enumerate(TEXTS)]
        csv.writer(file).writerows([["number", "body"], *numbered])
    return path


def embedded(model: Model, articles: Path, name: str, **options: Any) -> Path:
    """Return a file of vectors of the articles."""
    path = articles.with_name(name)
    model.run_table("embed", articles, path, text="body", **options)
    return path


def answers(model: Model, index: Path, **options: Any) -> list[list[dict[str, Any]]]:
    """Return the best texts of each query, by the task of the command."""
    rows = model.run("search", QUERIES, index=index, top_k=5, **options)
    return [row["results"] for row in rows]


def reference(
    queries: NDArray[Any], texts: NDArray[Any]
) -> tuple[list[list[int]], list[list[float]]]:
    """Return numbers and scores of the best five texts, by the library's search."""
    from sentence_transformers import util

    hits: Any = util.semantic_search(
        torch.tensor(queries.astype(np.float64)), torch.tensor(texts.astype(np.float64)), top_k=5
    )
    numbers = [[hit["corpus_id"] for hit in row] for row in hits]
    return numbers, [[hit["score"] for hit in row] for row in hits]


def assert_hits(results: list[list[dict[str, Any]]], expected: Any) -> None:
    numbers, scores = expected
    assert [[hit["corpus_id"] for hit in row] for row in results] == numbers
    found = [[hit["score"] for hit in row] for row in results]
    np.testing.assert_allclose(found, scores, atol=1e-5)


@pytest.mark.by_default(".npy-float16", ".parquet-float32", ".parquet-int8")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_hits_are_those_of_the_library_on_the_stored_vectors(
    model: Model, articles: Path, ending: str, dtype: str
) -> None:
    index = embedded(model, articles, f"v{ending}", output_dtype=dtype)
    texts = model.embed(TEXTS, output_dtype=dtype)  # type: ignore[arg-type]
    results = answers(model, index)
    assert_hits(results, reference(model.embed(QUERIES), texts))
    bodies = [[hit.get("body") for hit in row] for row in results]
    if ending == ".parquet":
        assert bodies == [[TEXTS[hit["corpus_id"]] for hit in row] for row in results]
        assert {"number", "body", "corpus_id", "score"} == set(results[0][0])
    else:
        assert {name for row in bodies for name in row} == {None}
        named = answers(model, index, corpus=articles, corpus_text="body")
        assert [[hit["body"] for hit in row] for row in named] == [
            [TEXTS[hit["corpus_id"]] for hit in row] for row in results
        ]


def test_dimension_and_normalization_are_those_of_the_record(model: Model, articles: Path) -> None:
    index = embedded(model, articles, "short.npy", dim=8, normalize=True)
    texts = model.embed(TEXTS, dim=8, normalize=True)
    assert_hits(answers(model, index), reference(model.embed(QUERIES, dim=8), texts))
    record = json.loads((articles.parent / "short.npy.json").read_text())
    assert (record["dimension"], record["normalized"], record["rows"]) == (8, True, len(TEXTS))
    assert record["pooling"] == ["PoolingModule"] and record["prompt"] == ""


def test_a_folder_is_searched_in_the_order_of_its_names(model: Model, articles: Path) -> None:
    whole = embedded(model, articles, "whole.parquet")
    for ending in (".npy", ".parquet"):
        folder = articles.parent / f"folder{ending[1:]}"
        folder.mkdir()
        for name, part in (("b", TEXTS[20:]), ("a", TEXTS[:20])):
            (articles.parent / f"{name}.txt").write_text("\n".join(part) + "\n")
            model.run_table("embed", articles.parent / f"{name}.txt", folder / f"{name}{ending}")
        found = [[hit["corpus_id"] for hit in row] for row in answers(model, folder)]
        assert found == [[hit["corpus_id"] for hit in row] for row in answers(model, whole)]


def test_lists_of_any_length_of_former_files_are_read(model: Model, articles: Path) -> None:
    index = embedded(model, articles, "new.parquet")
    table = pyarrow.parquet.read_table(index)
    place = table.schema.get_field_index("embedding")
    lists = table["embedding"].cast(pyarrow.list_(pyarrow.float32()))
    old = articles.with_name("old.parquet")
    pyarrow.parquet.write_table(table.set_column(place, "embedding", lists), old)
    assert answers(model, old) == answers(model, index)
    uneven = pyarrow.table({"embedding": [[1.0, 2.0], [1.0, 2.0, 3.0], [1.0]]})
    pyarrow.parquet.write_table(uneven, old)
    with pytest.raises(UsageError, match="'embedding' has no vectors of one size"):
        answers(model, old)


def test_vectors_of_another_model_prompt_or_tool(
    model: Model, articles: Path, hub_checkpoint: Make, caplog: pytest.LogCaptureFixture
) -> None:
    index = embedded(model, articles, "v.npy")
    prompted = embedded(model, articles, "p.parquet", prompt="a b ")
    with pytest.raises(UsageError, match=r"p\.parquet: the prompt of the texts is 'a b ', and "):
        answers(model, prompted)
    assert answers(model, prompted, corpus_prompt="a b ")
    other = converted(
        hub_checkpoint("BertModel", "other", intermediate_size=40), articles.parent / "theirs"
    )
    with pytest.raises(UsageError, match=r"v\.npy: the vectors are from .*model, [0-9a-f]{12}, "):
        Model(other, model.session).run("search", QUERIES, index=index)
    again = converted(hub_checkpoint("BertModel"), articles.parent / "again")
    same = Model(again, model.session).run("search", QUERIES, index=index)
    assert same == model.run("search", QUERIES, index=index), "another conversion of one model"
    foreign = articles.with_name("foreign.npy")
    np.save(foreign, model.embed(TEXTS))
    with caplog.at_level("WARNING", "zoo"):
        assert answers(model, foreign) == answers(model, index)
    assert "foreign.npy does not say which model made it" in caplog.text
    np.save(foreign, model.embed(TEXTS)[:, :7])
    with pytest.raises(UsageError, match=r"has vectors of 7 numbers, and .*model of 32"):
        answers(model, foreign)
    np.save(index, model.embed(TEXTS)[:9])
    with pytest.raises(VerificationError, match=r"v\.npy has 9 vectors, and its record says 30"):
        answers(model, index)


def test_a_former_record_does_not_stay(model: Model, articles: Path) -> None:
    """A table that replaces another one has its own record, or the file is refused."""
    index = embedded(model, articles, "v.npy", dim=4)
    with pytest.raises(UsageError, match="exists; give --force"):
        model.run_table("embed", articles, index, text="body")
    model.run_table("embed", articles, index, text="body", force=True)
    assert json.loads((articles.parent / "v.npy.json").read_text())["dimension"] == 32
    index.unlink()
    with pytest.raises(UsageError, match=r"v\.npy\.json exists; give --force"):
        model.run_table("embed", articles, index, text="body")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--index v.parquet --corpus articles.csv", "v.parquet has its own texts, and --corpus"),
        ("--index v.jsonl", "v.jsonl is not a file of vectors that can be searched; give a .npy"),
        ("--index none.npy", "none.npy does not exist; write it with zoo run embed --output"),
        ("--index .", " has no vectors of one format; give a folder of .npy or of .parquet files"),
    ],
)
def test_options_are_judged_before_torch_is_loaded(
    hub_checkpoint: Make, articles: Path, options: str, message: str, monkeypatch: Any
) -> None:
    model = converted(hub_checkpoint("BertModel"), articles.parent / "model").path
    monkeypatch.chdir(articles.parent)
    for name in ("v.parquet", "v.jsonl"):
        Path(name).write_bytes(b"")
    Path("w.npy").write_bytes(b"")
    loaded, written = modules_after("run", "search", model, "a b", *options.split(), code=None)
    assert not loaded & {"torch", "onnxruntime", "transformers"}
    assert message in " ".join(written.split())


def test_damaged_files_are_one_line(model: Model, articles: Path) -> None:
    index = embedded(model, articles, "v.npy")
    content = index.read_bytes()
    for damage in (b"", content[:50], b"x" + content, content[:-9]):
        index.write_bytes(damage)
        with pytest.raises(ZooError, match=r"v\.npy"), open_index(index, [], "cosine"):
            pass
    np.save(index, np.array(["a"]))
    with pytest.raises(UsageError, match="and no vectors"), open_index(index, [], "cosine"):
        pass


def test_the_command(model: Model, articles: Path) -> None:
    path = model.checkpoint.path
    index = articles.with_name("v.npy")
    words = ("run", "embed", path, "--input", articles, "--text", "body", "-o", index)
    assert warm.zoo(*words, "--backend", "cpu").returncode == 0
    searched = ("run", "search", path, "--index", index, "--backend", "cpu", *QUERIES)
    done = warm.zoo(*searched, "--corpus", articles, "--corpus-text", "body", "--top-k", "5")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line)["results"] for line in done.stdout.splitlines()]
    assert_hits(rows, reference(model.embed(QUERIES), model.embed(TEXTS)))
    articles.write_text("body\nonly one\n")
    done = warm.zoo(*searched, "--corpus", articles)
    assert done.returncode == 2
    assert "v.npy has 30 vectors, and --corpus 1 texts" in " ".join(done.stderr.split())


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_binary_vectors_are_those_of_the_library(model: Model, articles: Path, ending: str) -> None:
    """Their bytes, and the scores of a query in float32 with signs."""
    from sentence_transformers.util import quantize_embeddings

    index = embedded(model, articles, f"bits{ending}", output_dtype="binary")
    expected = quantize_embeddings(model.embed(TEXTS), "ubinary")
    if ending == ".npy":
        np.testing.assert_array_equal(np.load(index), expected)
    signs = np.unpackbits(expected, axis=1).astype(np.float64) * 2 - 1
    queries = model.embed(QUERIES).astype(np.float64)
    lengths = np.linalg.norm(queries, axis=1, keepdims=True) * np.sqrt(signs.shape[1])
    cosines = -np.sort(-(queries @ signs.T / lengths), axis=1)[:, :5]
    found = [[hit["score"] for hit in row] for row in answers(model, index)]
    np.testing.assert_allclose(found, cosines, atol=1e-5)


def test_an_approximate_search_reports_its_recall(
    model: Model, articles: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("faiss")
    index = embedded(model, articles, "v.parquet")
    expected = reference(model.embed(QUERIES), model.embed(TEXTS))
    for method in ("hnsw", "int8", "binary"):
        with caplog.at_level("INFO", "zoo"):
            found = answers(model, index, search_method=method, rescore_multiplier=6)
        # Six times five are all texts, so that every method finds what the library does.
        assert_hits(found, expected)
        assert f"{method} search: recall 1.000 of the best 5 texts" in caplog.text


@pytest.mark.by_default("hnsw")
@pytest.mark.parametrize("method", ["hnsw", "int8", "binary"])
def test_an_approximate_index_is_stored(
    model: Model, articles: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read by later searches of the same vectors, and built again if it is damaged."""
    pytest.importorskip("faiss")
    caplog.set_level("INFO", "zoo")

    def search(index: Path, *, builds: bool) -> list[list[dict[str, Any]]]:
        caplog.clear()
        found = answers(model, index, search_method=method)
        assert ("building" in caplog.text) is builds, caplog.text
        return found

    index = embedded(model, articles, "v.npy")
    expected = search(index, builds=True)
    assert search(index, builds=False) == expected
    (stored,) = (home() / "indexes").iterdir()
    file = stored / "index.faiss"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert search(index, builds=True) == expected
    assert f"{file} was changed" in caplog.text
    half = embedded(model, articles, "h.npy", output_dtype="float16")
    search(half, builds=True)
    same = embedded(model, articles, "same.npy")
    assert search(same, builds=False) == expected
    assert len(list((home() / "indexes").iterdir())) == 2


def test_search_in_python_is_the_command(model: Model, articles: Path) -> None:
    """All options have their names, and the results their keys; the recall is on the results."""
    index = embedded(model, articles, "v.npy", output_dtype="binary")
    options: dict[str, Any] = {"corpus_text": "body", "index": index, "top_k": 3}
    found = model.search(QUERIES, articles, **options)
    assert found == model.run("search", QUERIES, corpus=articles, **options)
    assert found.recall is None and found[0]["results"][0]["number"] is not None
    assert model.search(QUERIES[0], index=str(index), top_k=3)[0]["text"] == QUERIES[0]
    wrong: tuple[dict[str, Any], ...] = ({"search_method": "hsnw"}, {"rescore_multiplier": 0})
    for option in wrong:
        with pytest.raises(UsageError, match=f"{min(option)} is "):
            model.search(QUERIES, index=index, **option)
    with pytest.raises(UsageError, match="give --corpus FILE, or --index FILE"):
        model.search(QUERIES)
    pytest.importorskip("faiss")
    index = embedded(model, articles, "w.npy")
    few = model.search(QUERIES, index=index, search_method="binary", rescore_multiplier=1)
    exact = model.search(QUERIES, index=index)
    shares = []
    for mine, theirs in zip(few, exact, strict=True):
        worst = theirs["results"][-1]["score"] - 1e-5
        shares.append(np.mean([hit["score"] >= worst for hit in mine["results"]]))
    assert few.recall is not None and few.recall < 1
    assert few.recall == pytest.approx(np.mean(shares))


def test_an_approximate_search_needs_an_index_and_faiss(
    model: Model, articles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="searches stored vectors, and there are none; write them"):
        model.run("search", QUERIES, corpus=TEXTS, search_method="hnsw")
    index = embedded(model, articles, "v.npy")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ZooError, match=r"faiss-cpu, which is not installed; pip install faiss-cpu"):
        answers(model, index, search_method="hnsw")
