"""Commands that write to a bucket."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import warm
from tests.faults import newer
from tests.remote import DENIED, Store, store
from zoo.io.output.overwrite import MANIFESTS

__all__ = ["store"]
STEPS = (
    *("--max-steps", "1", "--device", "cpu", "--offline", "--set", "seq_len=16"),
    *("--set", "global_batch_tokens=64", "--set", "micro_batch_tokens=64"),
    *("--set", "eval_sequences=1"),
)
ROWS = [{"text": f"the text {number} of the table"} for number in range(40)]


@pytest.fixture(params=[0.0, pytest.param(0.1, marks=pytest.mark.long)])
def failing(request: pytest.FixtureRequest) -> float:
    """Share of the requests that fail; the pauses before they are repeated take seconds."""
    share: float = request.param
    return share


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = newer.newer_inputs(tmp_path / "inputs")
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def uploads() -> list[Path]:
    """Return what is left of outputs on this machine."""
    folder = Path(os.environ["ZOO_HOME"], "uploads")
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


def contents(store: Store, prefix: str) -> dict[str, bytes]:
    names = [name for name in store.names() if name.startswith(f"{prefix}/")]
    return {name.removeprefix(f"{prefix}/"): store[name] for name in names}


def local_contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_folder_appears_with_its_manifest_last(
    inputs: Path, store: Store, failing: float
) -> None:
    words = ["convert", inputs / "model", "--to", "hub"]
    assert warm.zoo(*words, "-o", "local").returncode == 0
    store.failing = failing
    done = warm.zoo(*words, "-o", store.at("models/hub"))
    store.failing = 0
    assert done.returncode == 0, done.stderr
    assert f"wrote {store.at('models/hub')}" in done.stdout
    assert contents(store, "models/hub") == local_contents(Path("local"))
    written = [path.rpartition("/")[2] for method, path in store.log if method == "PUT"]
    assert written[-1] in MANIFESTS
    assert uploads() == [] and [path.name for path in Path().iterdir()] == ["local"]


def test_only_what_zoo_wrote_is_replaced(inputs: Path, store: Store) -> None:
    url = store.at("model")
    words = ["convert", inputs / "model", "-o", url]
    assert warm.zoo(*words).returncode == 0
    done = warm.zoo(*words)
    assert done.returncode == 2 and f"{url} exists; give --force" in done.stderr
    before = contents(store, "model")
    store.log.clear()
    assert warm.zoo(*words, "--to", "hub", "--force").returncode == 0
    after = contents(store, "model")
    assert "zoo.json" in before and before != after
    writes = [(m, p.rpartition("/")[2]) for m, p in store.log if m in ("PUT", "DELETE", "POST")]
    # From the first change to the last one, nothing says that the folder is complete.
    assert writes[0] == ("DELETE", "zoo.json") and writes[-1][1] in MANIFESTS
    store["model/notes.txt"] = b"mine"
    done = warm.zoo(*words, "--force")
    assert done.returncode == 2 and "model holds notes.txt, which zoo did not write" in done.stderr
    assert contents(store, "model") == {**after, "notes.txt": b"mine"}


@pytest.mark.long
def test_results_of_a_job_that_is_resumed(inputs: Path, store: Store, failing: float) -> None:
    words = ["run", "classify", inputs / "model", "--input", inputs / "rows.jsonl"]
    assert warm.zoo(*words, "-o", "local.jsonl").returncode == 0
    store.failing = failing
    done = warm.zoo(*words, "-o", store.at("out/rows.jsonl"))
    assert done.returncode == 0, done.stderr
    assert f"wrote {store.at('out/rows.jsonl')}, 40 rows" in done.stdout
    assert store["out/rows.jsonl"] == Path("local.jsonl").read_bytes()
    done = warm.zoo(*words, "-o", store.at("out/rows.jsonl"))
    assert done.returncode == 2 and "exists; give --force" in done.stderr
    done = warm.zoo(*words, "-o", store.at("out/rows.jsonl"), "--force")
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_vectors_of_an_embedding_job(inputs: Path, store: Store, failing: float) -> None:
    store["rows.jsonl"] = (inputs / "rows.jsonl").read_bytes()
    done = warm.zoo("convert", inputs / "model", "--head", "none", "-o", "model")
    assert done.returncode == 0, done.stderr
    words = ["run", "embed", "model"]
    done = warm.zoo(*words, "--input", inputs / "rows.jsonl", "-o", "local.npy")
    assert done.returncode == 0, done.stderr
    store.failing = failing
    for force in ([], ["--force"]):
        target = store.at("out/local.npy")
        done = warm.zoo(*words, "--input", store.at("rows.jsonl"), "-o", target, *force)
        assert done.returncode == 0, done.stderr
    store.failing = 0
    assert contents(store, "out").keys() == {"local.npy", "local.npy.json"}
    for name, content in contents(store, "out").items():
        assert content == Path(name).read_bytes(), name


@pytest.mark.long
def test_shards_of_many_files(inputs: Path, store: Store, failing: float) -> None:
    (inputs / "many" / "deep").mkdir(parents=True)
    for number, name in enumerate(("a.jsonl", "b.jsonl", "deep/c.jsonl")):
        (inputs / "many" / name).write_text(json.dumps(ROWS[number]) + "\n")
    store.put_folder(inputs / "many", "many")
    words = ["run", "classify", inputs / "model"]
    assert warm.zoo(*words, "--input", inputs / "many", "--output", "local").returncode == 0
    store.failing = failing
    words += ["--input", store.at("many"), "--output", store.at("out")]
    first = warm.zoo(*words, "--shard", "1/2")
    assert first.returncode == 0, first.stderr
    assert "wrote 2 of 3 files" in first.stdout and "1 remains" in first.stdout
    again = warm.zoo(*words, "--shard", "1/2", "--resume")
    assert again.returncode == 0 and "2 were complete before" in again.stdout, again.stderr
    second = warm.zoo(*words, "--shard", "2/2")
    assert second.returncode == 0 and "remain" not in second.stdout, second.stderr
    store.failing = 0
    results = contents(store, "out")
    record = results.pop(".zoo-files.json")
    assert b"downloads" not in record
    local = local_contents(Path("local"))
    del local[".zoo-files.json"]
    assert results == local
    other = warm.zoo(*words, "--top-k", "1", "--shard", "2/2", "--resume")
    assert other.returncode == 2, other.stdout
    assert contents(store, "out").keys() == {*local, ".zoo-files.json"}


@pytest.mark.long
def test_a_corpus_that_a_run_reads(inputs: Path, store: Store, failing: float) -> None:
    words = ["corpus", "build", inputs / "texts.txt"]
    words += ["--tokenizer", "train", "--family", "gpt", "--vocab-size", "300"]
    assert warm.zoo(*words, "-o", "local").returncode == 0
    store.failing = failing
    done = warm.zoo(*words, "-o", store.at("corpus"))
    assert done.returncode == 0, done.stderr
    assert contents(store, "corpus") == local_contents(Path("local"))
    run = ["pretrain", "gpt", "--size", "tiny", "--train", store.at("corpus"), *STEPS]
    plan = warm.zoo(*run, "--dry-run", "-o", "run")
    assert plan.returncode == 0, plan.stderr
    store.failing = 0
    shard = store["corpus/train/tokens-00000.bin"]
    store["corpus/train/tokens-00000.bin"] = shard[: len(shard) // 2]
    done = warm.zoo(*run, "-o", "run")
    assert done.returncode == 3 and "tokens-00000.bin was changed" in done.stderr, done.stderr
    assert f"{store.at('corpus')}/train" in done.stderr


@pytest.mark.long
def test_texts_that_are_cleaned(inputs: Path, store: Store) -> None:
    pytest.importorskip("datatrove")
    store["crawl/a.jsonl"] = (inputs / "rows.jsonl").read_bytes()
    (inputs / "crawl").mkdir()
    (inputs / "crawl" / "a.jsonl").write_bytes(store["crawl/a.jsonl"])
    options = ["--deduplicate", "documents", "--workers", "1"]
    done = warm.zoo("corpus", "clean", inputs / "crawl", "-o", "local", *options)
    assert done.returncode == 0, done.stderr
    store.failing = 0.1
    done = warm.zoo("corpus", "clean", store.at("crawl"), "-o", store.at("clean"), *options)
    store.failing = 0
    assert done.returncode == 0, done.stderr
    remote_files = contents(store, "clean")
    local_files = local_contents(Path("local"))
    assert remote_files.keys() == local_files.keys()
    record = json.loads(remote_files["cleaning.json"])
    lines = gzip.decompress(remote_files["texts/00000.jsonl.gz"]).splitlines()
    local_lines = gzip.decompress(local_files["texts/00000.jsonl.gz"]).splitlines()
    # A text has the name of its file, which is another one.
    texts = [json.loads(line)["text"] for line in lines]
    assert texts == [json.loads(line)["text"] for line in local_lines] and texts
    assert b"downloads" not in b"".join(lines)
    assert list(record["plan"]["sources"]) == [store.at("crawl/a.jsonl")]
    done = warm.zoo("corpus", "inspect", store.at("clean"))
    assert done.returncode == 0, done.stderr
    assert uploads() == []


def run_words(inputs: Path) -> list[object]:
    """Return a run of six steps with a checkpoint after each second one."""
    run = ["pretrain", "gpt", "--size", "tiny", "--train", inputs / "texts.txt", *STEPS[2:]]
    steps = ["--set", "vocab_size=300", "--set", "save_steps=2", "--set", "save_total_limit=2"]
    return [*run, "--max-steps", "6", *steps, "--keep-optimizer"]


def is_same_run(store: Store, local: Path) -> None:
    """Check that a run of a bucket has the weights and the metrics of a local one."""
    remote_files = contents(store, "runs/x")
    local_files = local_contents(local)
    del local_files[".lock"]

    def lasting(names: Iterable[str]) -> set[str]:
        return {name for name in names if "tfevents" not in name}  # Their names have times.

    assert lasting(remote_files) == lasting(local_files)
    compared_names = [name for name in local_files if name.endswith(("safetensors", "s.jsonl"))]
    assert {"model/model.safetensors", "metrics.jsonl"} <= set(compared_names)
    for name in compared_names:
        assert remote_files[name] == local_files[name], name


def cut_off_run(store: Store) -> None:
    """Leave of a run what a process that was killed after step 4 has uploaded."""
    for name in contents(store, "runs/x"):
        if name.startswith("model/") or "step-00000006" in name or name == "final.json":
            store.remove(f"runs/x/{name}")


def test_a_run_of_a_bucket(inputs: Path, store: Store, failing: float) -> None:
    assert warm.zoo(*run_words(inputs), "-o", "local").returncode == 0
    url = store.at("runs/x")
    store.failing = failing
    done = warm.zoo(*run_words(inputs), "-o", url)
    store.failing = 0
    assert done.returncode == 0, done.stderr
    assert f"model: {url}/model" in done.stdout
    is_same_run(store, Path("local"))
    assert uploads() == []
    done = warm.zoo(*run_words(inputs), "-o", url)
    assert done.returncode == 2 and f"{url} exists" in done.stderr
    cut_off_run(store)
    store.failing = failing
    done = warm.zoo("pretrain", "--resume", url)
    store.failing = 0
    assert done.returncode == 0, done.stderr
    is_same_run(store, Path("local"))
    assert uploads() == []
    done = warm.zoo(
        "pretrain", "--continue-from", url, "--max-steps", "7", "-o", "longer", "--reset-optimizer"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("longer", "run.json").read_text())["parent"]["path"] == url
    done = warm.zoo(*run_words(inputs), "-o", url, "--auto-resume")  # It is finished.
    assert done.returncode == 0, done.stderr
    is_same_run(store, Path("local"))


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_that_is_started_again_until_it_ends(
    inputs: Path, store: Store, processes: int, *, streaming: bool
) -> None:
    store["texts.txt"] = (inputs / "texts.txt").read_bytes()
    words = run_words(inputs)
    if streaming:
        done = warm.zoo(*words, "-o", inputs / "gpt")
        assert done.returncode == 0, done.stderr
        words += ["--streaming", "--tokenizer", inputs / "gpt" / "model", "--workers", "1"]
        words += ["--set", "data.stream.eval_documents=4"]
    local = warm.in_processes(processes, *words, "-o", "local", "--auto-resume")
    assert local.returncode == 0, local.stderr
    words[words.index(inputs / "texts.txt")] = store.at("texts.txt")
    url = store.at("runs/x")
    store.failing = 0.1
    for _ in range(3):  # It begins, is resumed, and is finished.
        done = warm.in_processes(processes, *words, "-o", url, "--auto-resume")
        assert done.returncode == 0, done.stderr
        assert f"model: {url}/model" in done.stdout
        store.failing = 0
        is_same_run(store, Path("local"))
        assert uploads() == []
        if "resumed" not in done.stderr:
            cut_off_run(store)
        store.failing = 0.1


@pytest.mark.long
def test_a_run_whose_data_changed_is_not_resumed(inputs: Path, store: Store) -> None:
    store["texts.txt"] = (inputs / "texts.txt").read_bytes()
    words = run_words(inputs)
    words[words.index(inputs / "texts.txt")] = store.at("texts.txt")
    url = store.at("runs/x")
    assert warm.zoo(*words, "-o", url).returncode == 0
    cut_off_run(store)
    store["texts.txt"] = store["texts.txt"].replace(b"e", b"i")
    before = contents(store, "runs/x")
    done = warm.zoo("pretrain", "--resume", url)
    assert done.returncode in (2, 3) and "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) < 6 and url in done.stderr.splitlines()[-1]
    assert contents(store, "runs/x") == before


def test_a_checkpoint_that_cannot_be_uploaded_does_not_end_a_run(
    inputs: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.denied_after = 1  # object
    done = warm.zoo(*run_words(inputs), "-o", store.at("runs/x"))
    assert done.returncode == 4 and done.stdout == "", done.stderr
    assert "the checkpoint of step 2 was not uploaded" in done.stderr
    assert "access is denied" in done.stderr.splitlines()[-1]
    assert "model.safetensors" in {path.name for path in uploads()}


@pytest.mark.long
def test_a_run_that_is_killed_and_started_again(inputs: Path, store: Store) -> None:
    assert warm.zoo(*run_words(inputs), "-o", "local").returncode == 0
    words = [*run_words(inputs), "-o", store.at("runs/x"), "--auto-resume"]
    store.failing = 0.1
    # The first upload of the first checkpoint, its last one, and those of later checkpoints.
    for killed_at in ("step-00000002/", "run.json", "step-00000004/", "step-00000006/"):
        command = [sys.executable, "-m", "zoo", *map(str, words)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        store.log.clear()
        while process.poll() is None:
            uploaded = [path for method, path in list(store.log) if method == "PUT"]
            if any(killed_at in path for path in uploaded):
                process.kill()
            time.sleep(0.02)
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        if killed_at in ("step-00000002/", "step-00000004/"):  # Another machine goes on.
            shutil.rmtree(Path(os.environ["ZOO_HOME"], "uploads"))
    done = warm.zoo(*words)
    store.failing = 0
    assert done.returncode == 0, done.stderr
    is_same_run(store, Path("local"))
    assert uploads() == []


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        (f"s3://{DENIED}/out.jsonl", 4, "access is denied"),
        ("s3://no-such-bucket/out.jsonl", 4, "s3://no-such-bucket does not exist"),
        ("https://host/out.jsonl", 2, "can only be read"),
        ("s3://bucket", 2, "is a whole bucket"),
    ],
)
def test_an_output_that_cannot_be_written(
    inputs: Path, store: Store, url: str, code: int, message: str
) -> None:
    words = ["run", "classify", inputs / "model", "--input", inputs / "rows.jsonl"]
    done = warm.zoo(*words, "-o", url)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert list(Path().iterdir()) == [] and uploads() == []
