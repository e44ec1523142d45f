"""``zoo run`` over many files: shards, a killed process, and jobs that are refused."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import zoo
from tests.checkpoints import Make, hub_checkpoint
from tests.inference.conftest import Small, small
from tests.warm import Signal, at_once, zoo_with_signal
from tests.warm import zoo as command
from zoo.api import Model
from zoo.errors import UsageError, VerificationError
from zoo.inference.embed import Embed

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
__all__ = ["Make", "hub_checkpoint", "small"]
WORDS = "abcdefghij"
FILES = 5
ROWS = 12


def write_table(path: Path, first: int, rows: int = ROWS) -> None:
    texts = []
    for number in range(first, first + rows):
        texts.append(" ".join(WORDS[(number * 7 + k) % 10] for k in range(1 + number % 9)))
    numbers = list(range(first, first + rows))
    pyarrow.parquet.write_table(pyarrow.table({"id": numbers, "text": texts}), path)


@pytest.fixture
def model(small: Small) -> Model:
    return small("BertModel")[0]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of five tables."""
    folder = tmp_path / "in"
    (folder / "inner").mkdir(parents=True)
    names = ("0", "1", "2", "3", "inner/4")
    for number, name in enumerate(names):
        write_table(folder / f"{name}.parquet", ROWS * number)
    return folder


@pytest.fixture
def run(model: Model, source: Path) -> list[object]:
    """The beginning of a command."""
    return ["run", "embed", model.checkpoint.path, "--backend", "cpu", "--input", source]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a job's folder, without its record."""
    files = {}
    for path in folder.rglob("*.*"):
        if not path.name.startswith("."):
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def plain_runs(model: Model, source: Path, folder: Path, ending: str) -> dict[str, bytes]:
    """Return the files that runs over single files write."""
    folder.mkdir()
    for path in sorted(source.rglob("*.parquet")):
        output = folder / path.relative_to(source).with_suffix(ending)
        output.parent.mkdir(exist_ok=True)
        model.run_table("embed", path, output)
    return contents(folder)


@pytest.mark.by_default(".jsonl")
@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".npy"])
def test_shards_write_the_bytes_of_plain_runs(
    model: Model, run: list[object], source: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / "out"
    words = [*run, "--output", out, "--output-suffix", ending, "--json"]
    results = at_once(*([*words, "--shard", f"{number}/3"] for number in (1, 2, 3)))
    assert [done.returncode for done in results] == [0, 0, 0], [done.stderr for done in results]
    counts = [json.loads(done.stdout) for done in results]
    assert [value["rows"] for value in counts] == [24, 24, 12]
    assert sum(value["files"]["written"] for value in counts) == FILES
    assert contents(out) == plain_runs(model, source, tmp_path / "plain", ending)
    done = command(*words, "--resume")
    assert json.loads(done.stdout)["files"] == {
        "total": FILES,
        "written": 0,
        "skipped": FILES,
        "remaining": 0,
    }


def test_a_killed_shard_is_started_again(
    model: Model, run: list[object], source: Path, tmp_path: Path
) -> None:
    """Every row is there once, with the bytes of runs over single files."""
    write_table(source / "1.parquet", 1000, rows=6000)
    out = tmp_path / "out"
    words = [*run, "--threads", "1", "--output", out, "--resume"]
    (out / "inner").mkdir(parents=True)
    assert command(*words, "--shard", "1/2").returncode == 0
    killed = zoo_with_signal(Signal(signal.SIGKILL, 0.3, out), *words, "--shard", "2/2")
    assert killed.returncode == -signal.SIGKILL
    assert not (out / "1.parquet").exists()
    done = command(*words, "--shard", "2/2")
    assert done.returncode == 0, done.stderr
    assert contents(out) == plain_runs(model, source, tmp_path / "plain", ".parquet")
    ids: list[int] = []
    for path in out.rglob("*.parquet"):
        ids += pyarrow.parquet.read_table(path).column("id").to_pylist()
    assert len(ids) == len(set(ids)) == 4 * ROWS + 6000


@pytest.mark.long
def test_the_function_does_what_the_command_does(
    model: Model, run: list[object], source: Path, tmp_path: Path
) -> None:
    done = command(*run, "--output", tmp_path / "a", "--shard", "2/2", "--dim", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote 2 of 5 files, 24 rows; 3 remain for other shards: {tmp_path}/a\n"
    result = zoo.run(
        "embed",
        model.checkpoint.path,
        input=source,
        output=tmp_path / "b",
        shard="2/2",
        dim=4,
        backend="cpu",
    )
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert result.files is not None and result.files.remaining == 3
    assert result.to_dict()["files"]["written"] == 2 and result.rows == 24
    with pytest.raises(UsageError, match=r"output_suffix is '\.xls'"):
        suffix: Any = ".xls"
        zoo.run("embed", "m", input=source, output=tmp_path / "c", output_suffix=suffix)


def test_several_inputs_may_be_named(run: list[object], source: Path, tmp_path: Path) -> None:
    words = [*run[:-1], source / "0.parquet", "--input", str(source / "inner" / "*.parquet")]
    done = command(*words, "--output", tmp_path / "out", "--output-suffix", ".csv")
    assert done.returncode == 0, done.stderr
    assert sorted(contents(tmp_path / "out")) == ["0.csv", "4.csv"]


def test_a_file_that_changes_during_the_job_has_no_output(
    model: Model, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = Embed.compute
    changed = source / "1.parquet"

    def change(self: Embed, items: list[Any], batch: Any) -> Any:
        if changing in items[0].record.location:
            write_table(changed, 500)
        return compute(self, items, batch)

    def embed(**options: Any) -> Any:
        reference = model.checkpoint.path
        out = tmp_path / "out"
        return zoo.run("embed", reference, input=source, output=out, backend="cpu", **options)

    monkeypatch.setattr(Embed, "compute", change)
    changing = "0.parquet"
    with pytest.raises(VerificationError, match=r"1\.parquet changed after the job began"):
        embed()
    changing = "1.parquet"
    with pytest.raises(VerificationError, match=r"1\.parquet changed while it was read"):
        embed(resume=True)
    assert sorted(contents(tmp_path / "out")) == ["0.parquet"]
    changing = "none"
    result = embed(resume=True)
    assert result.files is not None and result.files.written == 4
    assert contents(tmp_path / "out") == plain_runs(model, source, tmp_path / "p", ".parquet")


def test_a_bad_row_can_be_corrected(run: list[object], tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    for name, text in (("a", '"a"'), ("b", "3"), ("c", '"c"')):
        (lines / f"{name}.jsonl").write_text(f'{{"text": {text}}}\n')
    words = [*run[:-1], lines, "--output", tmp_path / "out"]
    done = command(*words)
    assert done.returncode == 2 and "b.jsonl:1: text is of type int" in done.stderr
    assert sorted(contents(tmp_path / "out")) == ["a.jsonl"]
    (lines / "b.jsonl").write_text('{"text": "b"}\n')
    assert command(*words, "--resume").returncode == 0
    assert sorted(contents(tmp_path / "out")) == ["a.jsonl", "b.jsonl", "c.jsonl"]


Refusal = tuple[list[object], int, str]


def refusals(run: list[object], source: Path, folder: Path) -> Iterator[Refusal]:
    """Yield arguments, the exit code, and a part of the message."""
    out = ["--output", folder / "new"]
    yield [*run], 2, "several inputs have no single output; name a folder with --output"
    yield [*run, "--output", "-"], 2, "several inputs have no single output"
    yield [*run, *out, "--shard", "3/2"], 2, "there is no shard 3 of 2"
    yield [*run, *out, "--shard", "0/2"], 2, "shards are counted from 1"
    yield [*run, *out, "--output-suffix", ".xls"], 2, "'.xls' is not one of"
    yield [*run, *out, "--excel-safe"], 2, "only .csv and .tsv have cells"
    yield [*run, *out, "--text", "title"], 2, "title"
    yield [*run, *out, "a text"], 2, "texts were given both as arguments and in a file"
    yield [*run, "--output", source / "new"], 2, "is inside the input"
    yield [*run, *out, "--input", "none.parquet"], 4, "none.parquet does not exist"
    empty = folder / "empty"
    yield [*run[:-1], empty, *out], 4, f"there are no files in {empty}"
    one = [*run[:-1], source / "0.parquet"]
    yield [*one, "--output", folder / "o.csv", "--shard", "1/2"], 2, "--shard is for many files"
    yield [*one, "--output-suffix", ".csv"], 2, "--output-suffix is for many files"
    unlike = folder / "unlike"
    yield [*run, *out, "--input", unlike], 2, "lacks the column 'id', unlike"
    partial = folder / "partial"
    yield [*run[:-1], partial, *out], 2, "a.parquet.part is a partial file"


def test_wrong_jobs_have_one_line(
    model: Model, run: list[object], source: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "unlike").mkdir()
    table = pyarrow.table({"text": ["a"]})
    pyarrow.parquet.write_table(table, tmp_path / "unlike" / "x.parquet")
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / "a.parquet.part").touch()
    for words, code, message in refusals(run, source, tmp_path):
        done = command(*words)
        assert (done.returncode, done.stdout) == (code, ""), (words, done.stderr)
        assert message in done.stderr, (words, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
        assert not (tmp_path / "new").exists()


def test_another_task_on_pairs(small: Small, tmp_path: Path) -> None:
    """Rows of other tasks are JSON lines, also with texts and pairs."""
    model = small("BertForSequenceClassification")[0]
    folder = tmp_path / "pairs"
    folder.mkdir()
    for name in "ab":
        lines = [json.dumps({"text": f"{name} {k}", "text_pair": "b"}) for k in range(3)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out"
    result = zoo.run("classify", model.checkpoint.path, input=folder, output=out, backend="cpu")
    assert result.rows == 6
    rows = [json.loads(line) for line in (out / "a.jsonl").read_text().splitlines()]
    expected = model.classify([(f"a {k}", "b") for k in range(3)])
    assert [row["label"] for row in rows] == [row["label"] for row in expected]
    assert [row["score"] for row in rows] == pytest.approx([row["score"] for row in expected])
