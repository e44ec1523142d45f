"""Commands that read what URLs name."""

import json
import shutil
from pathlib import Path

import pytest

import zoo
from tests import warm
from tests.faults import newer
from tests.remote import DENIED, Store, Web, store, web
from zoo.errors import UsageError

__all__ = ["store", "web"]


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = newer.newer_inputs(tmp_path / "inputs")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_a_model_and_a_table_of_a_bucket(inputs: Path, store: Store, web: Web) -> None:
    store.put_folder(inputs / "model", "models/classifier")
    table = b'{"text": "a text"}\n{"text": "another text"}\n'
    (inputs / "rows.jsonl").write_bytes(table)
    store["table.jsonl"] = table
    web.files["/table.jsonl"] = table
    local = warm.zoo("run", "classify", inputs / "model", "--input", inputs / "rows.jsonl")
    assert local.returncode == 0, local.stderr
    for source in (store.at("table.jsonl"), f"{web.url}/table.jsonl?signature=hunter2"):
        done = warm.zoo("run", "classify", store.at("models/classifier"), "--input", source)
        assert (done.returncode, done.stdout) == (0, local.stdout), done.stderr
        assert "hunter2" not in done.stderr
    assert list(Path().iterdir()) == []


@pytest.mark.long
def test_a_corpus_of_a_bucket_has_the_tokens_of_local_files(inputs: Path, store: Store) -> None:
    texts = (inputs / "texts.txt").read_bytes()
    store["books/one.txt"] = texts
    store["books/two.txt"] = texts[::-1].decode("utf-8", "replace").encode()
    (inputs / "books").mkdir()
    for name in ("one.txt", "two.txt"):
        (inputs / "books" / name).write_bytes(store[f"books/{name}"])
    options = ["--tokenizer", "train", "--family", "bert", "--vocab-size", "200"]
    for source, output in ((inputs / "books", "local"), (store.at("books"), "remote")):
        done = warm.zoo("corpus", "build", source, "-o", output, *options)
        assert done.returncode == 0, done.stderr
    records = [json.loads(Path(name, "corpus.json").read_text()) for name in ("local", "remote")]
    assert records[0]["splits"] == records[1]["splits"]
    assert [*records[1]["sources"]] == [store.at("books/one.txt"), store.at("books/two.txt")]


@pytest.mark.long
def test_a_run_records_the_url_of_its_data(inputs: Path, store: Store) -> None:
    store["texts.txt"] = (inputs / "texts.txt").read_bytes()
    words = newer.pretrain(inputs)
    local = warm.zoo(*words, "-o", "local")
    assert local.returncode == 0, local.stderr
    words[words.index(inputs / "texts.txt")] = store.at("texts.txt")
    done = warm.zoo(*words, "-o", "remote")
    assert done.returncode == 0, done.stderr
    weights = [Path(run, "model", "model.safetensors").read_bytes() for run in ("local", "remote")]
    assert weights[0] == weights[1]
    assert store.at("texts.txt") in Path("remote", "run.json").read_text()
    for file in Path("remote").rglob("*.json"):
        assert "downloads" not in file.read_text(), file
        assert "hunter2" not in file.read_text(), file


REFUSED = {
    "missing": ("s3://BUCKET/none.txt", 4, "s3://BUCKET/none.txt does not exist"),
    "denied": (f"s3://{DENIED}/a.txt", 4, f"s3://{DENIED}/a.txt: access is denied"),
    "password": ("https://a:hunter2@host/a.txt", 2, "has a user name or a password"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_ends_a_command(inputs: Path, store: Store, name: str) -> None:
    url, code, message = REFUSED[name]
    url = url.replace("BUCKET", store.bucket)
    done = warm.zoo("corpus", "inspect", url)
    line = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (code, "")
    assert message.replace("BUCKET", store.bucket) in line
    assert "hunter2" not in done.stderr and list(Path().iterdir()) == []


def test_errors_name_the_url_of_a_row(inputs: Path, store: Store) -> None:
    store["bad.jsonl"] = b'{"text": "a"}\n{"text": 1}\n'
    done = warm.zoo("run", "classify", inputs / "model", "--input", store.at("bad.jsonl"))
    assert done.returncode == 2
    assert f"{store.at('bad.jsonl')}:2" in done.stderr
    assert "downloads" not in done.stderr


@pytest.mark.long
def test_half_a_model_is_not_taken_for_a_whole_one(inputs: Path, store: Store) -> None:
    store.put_folder(inputs / "model", "whole")
    model = shutil.copytree(inputs / "model", inputs / "half")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    store.put_folder(model, "half")
    (model / "zoo.json").unlink()
    (model / "config.json").unlink()
    store.put_folder(model, "unfinished")
    for name in ("half", "unfinished"):
        done = warm.zoo("run", "classify", store.at(name), "a text")
        assert done.returncode in (2, 3, 4), done.stderr
        assert done.stdout == "" and len(done.stderr.splitlines()) == 1


def test_a_query_is_not_recorded(inputs: Path) -> None:
    words = newer.pretrain(inputs)
    words[words.index(inputs / "texts.txt")] = "https://host/a.txt?signature=hunter2"
    done = warm.zoo(*words, "-o", "run")
    assert done.returncode == 2 and "has a query" in done.stderr
    assert "hunter2" not in done.stderr


def test_python_functions_read_urls(inputs: Path, store: Store) -> None:
    store.put_folder(inputs / "model", "model")
    store["texts.txt"] = b"one text\nanother text\n"
    expected = zoo.run("classify", inputs / "model", ["one text", "another text"])
    results = zoo.run("classify", store.at("model"), input=store.at("texts.txt"))
    assert [row["scores"] for row in results] == [row["scores"] for row in expected]
    with pytest.raises(UsageError, match="can only be read"):
        zoo.run("classify", inputs / "model", "a", output="https://host/a.jsonl")
