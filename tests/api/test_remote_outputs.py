"""Functions that write to a bucket."""

from pathlib import Path

import pytest

import zoo
from tests.cli.test_remote_outputs import contents, local_contents, uploads
from tests.faults import newer
from tests.remote import DENIED, Store, store
from zoo.api.remote_outputs import with_urls
from zoo.api.training import Training
from zoo.errors import SourceError, UsageError, name_place
from zoo.io.remote.paths import UrlPath

__all__ = ["store"]


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = newer.newer_inputs(tmp_path / "inputs")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_a_model_that_a_function_wrote_is_loaded(inputs: Path, store: Store) -> None:
    local = zoo.convert(inputs / "hub", output="local")
    report = zoo.convert(inputs / "hub", output=store.at("models/x"))
    assert str(report.path) == store.at("models/x")
    assert contents(store, "models/x") == local_contents(Path("local"))
    assert uploads() == [] and [path.name for path in Path().iterdir()] == ["local"]
    with pytest.raises(UsageError, match=r"models/x exists; give --force"):
        zoo.convert(inputs / "hub", output=report.path)
    texts = ["one text", "another text"]
    assert report.path is not None and local.path is not None
    expected = zoo.load(local.path).classify(texts)
    assert zoo.load(report.path).classify(texts) == expected
    rows = store.at("rows.jsonl")
    results = zoo.run("classify", report.path, texts, output=rows)
    assert str(results.output) == rows and results.rows == len(texts)
    assert len(store["rows.jsonl"].splitlines()) == len(texts)


def test_outputs_that_are_options_of_a_task(inputs: Path, store: Store) -> None:
    table = inputs / "table.jsonl"
    task = "text-classification"
    model = zoo.load(inputs / "model")
    local = zoo.evaluate(model, task=task, eval=table, predictions="rows.csv", figures="figures")
    remote = zoo.evaluate(
        model,
        task=task,
        eval=table,
        predictions=store.at("out/rows.csv"),
        figures=store.at("out/figures"),
    )
    assert remote.metrics == local.metrics
    assert contents(store, "out") == local_contents(Path())


def test_a_model_writes_a_table_to_a_bucket(inputs: Path, store: Store) -> None:
    (inputs / "rows.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    model = zoo.load(inputs / "model")
    assert model.run_table("classify", inputs / "rows.jsonl", store.at("rows.jsonl")) == 2
    model.run_table("classify", inputs / "rows.jsonl", "rows.jsonl")
    assert store["rows.jsonl"] == Path("rows.jsonl").read_bytes()


def test_a_function_that_fails_uploads_nothing(inputs: Path, store: Store) -> None:
    with pytest.raises(UsageError, match="has no head"):
        zoo.convert(inputs / "hub", head="nothing", output=store.at("x"))
    with pytest.raises(SourceError, match="access is denied"):
        zoo.convert(inputs / "hub", output=f"s3://{DENIED}/x")
    with pytest.raises(UsageError, match="can only be read"):
        zoo.convert(inputs / "hub", output="https://host/x")
    assert store.names() == [] and uploads() == []


def test_paths_of_a_result(tmp_path: Path) -> None:
    name_place(f"{tmp_path}/", "s3://bucket/")  # Only this test has the folder.
    runs = tmp_path / "runs"
    paths = {"runs": runs, "model": runs / "model"}
    result = with_urls(Training(paths, runs=(runs / "seed-0", Path("b"))))
    assert result.to_dict() == {"runs": "s3://bucket/runs", "model": "s3://bucket/runs/model"}
    assert [str(path) for path in result.runs] == ["s3://bucket/runs/seed-0", "b"]
    assert str(result.run / "model" / "zoo.json") == "s3://bucket/runs/model/zoo.json"
    assert str(result.run.parent) == "s3://bucket" and result.run.name == "runs"
    assert result.run == UrlPath("s3://bucket/runs") and not result.run.exists()
    unchanged = Training({"run": Path("runs")})
    assert with_urls(unchanged) is unchanged
