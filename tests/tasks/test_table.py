"""``zoo run --output`` and ``Model.run_table``: formats, columns, and interrupted outputs."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import zoo
from tests.checkpoints import Make
from tests.inference.conftest import Small
from tests.tasks.reranker.making import both, late, sparse
from tests.warm import zoo as command
from zoo.api import Model
from zoo.errors import UsageError, VerificationError
from zoo.inference.embed import Embed
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.output import resumable

WORDS = "abcdefghij"
ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet", ".npy")
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")


def sentence(k: int) -> str:
    return " ".join(WORDS[(k * 7 + i) % 10] for i in range(1 + k % 9))


@pytest.fixture
def model(small: Small) -> Model:
    return small("BertModel")[0]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 40 rows with a column of texts between others."""
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review", "note"])
        writer.writerows([k, sentence(k), f'a, "b"\n{k}'] for k in range(40))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, read by other programs."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        values: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return values
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def test_every_format_has_the_vectors_and_the_other_columns(
    model: Model, table: Path, tmp_path: Path
) -> None:
    texts = [sentence(k) for k in range(40)]
    expected = model.embed(texts)
    for ending in ENDINGS:
        path = tmp_path / f"out{ending}"
        assert model.run_table("embed", table, path, text="review") == 40
        assert sorted(tmp_path.glob("*.part*")) == []
        if ending == ".npy":
            array = np.load(path)
            assert array.dtype == np.float32 and array.flags.c_contiguous
            np.testing.assert_array_equal(array, expected)
            continue
        found = rows(path)
        assert list(found[0])[:4] == ["id", "review", "note", "embedding"]
        assert [row["review"] for row in found] == texts
        assert [(str(row["id"]), row["note"]) for row in found] == [
            (str(k), f'a, "b"\n{k}') for k in range(40)
        ]
        vectors = [row["embedding"] for row in found]
        parsed = [json.loads(v) if isinstance(v, str) else v for v in vectors]
        np.testing.assert_array_equal(np.array(parsed, np.float32), expected)
    schema = pyarrow.parquet.read_schema(tmp_path / "out.parquet")
    assert schema.field("embedding").type == pyarrow.list_(pyarrow.float32(), 32)


def test_the_command_writes_what_the_function_does(
    model: Model, table: Path, tmp_path: Path
) -> None:
    model.run_table("embed", table, tmp_path / "a.jsonl", text="review", dim=4)
    path = str(model.checkpoint.path)
    run = ("run", "embed", path, "--input", table, "--text", "review", "--dim", "4")
    done = command(*run, "--backend", "cpu", "--output", tmp_path / "b.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "task": "embed",
        "output": str(tmp_path / "b.jsonl"),
        "rows": 40,
        "truncated": 0,
    }
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    printed = command(*run, "--backend", "cpu")
    assert printed.stdout == (tmp_path / "b.jsonl").read_text()
    piped = command(*run, "--backend", "cpu", "-o", "-")
    assert piped.stdout == printed.stdout


def test_other_tasks_have_rows_of_their_results(small: Small, table: Path, tmp_path: Path) -> None:
    model = small("BertForSequenceClassification")[0]
    results = model.classify([sentence(k) for k in range(40)])
    for ending in (".csv", ".parquet"):
        model.run_table("classify", table, tmp_path / f"c{ending}", text="review")
        found = rows(tmp_path / f"c{ending}")
        assert [row["label"] for row in found] == [result["label"] for result in results]
        assert [float(row["score"]) for row in found] == [result["score"] for result in results]
    with pytest.raises(UsageError, match="arrays hold vectors, which classify does not compute"):
        model.run_table("classify", table, tmp_path / "c.npy", text="review")


# -- vectors ---------------------------------------------------------------------------------------


def test_embeddings_are_cut_normalized_and_quantized(model: Model) -> None:
    texts = [sentence(k) for k in range(12)]
    full = model.embed(texts).astype(np.float64)
    cut = full[:, :5]
    np.testing.assert_array_equal(model.embed(texts, dim=5), cut.astype(np.float32))
    unit = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(texts, dim=5, normalize=True), unit, atol=1e-6)
    half = model.embed(texts, output_dtype="float16")
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, full.astype(np.float32).astype(np.float16))
    codes = model.embed(texts, output_dtype="int8")
    assert codes.dtype == np.int8 and (np.abs(codes.astype(int)).max(axis=1) == 127).sum() == 12
    scales = np.abs(full).max(axis=1, keepdims=True) / 127
    assert np.abs(codes * scales - full).max() <= scales.max() / 2 + 1e-6
    cosines = [
        (v @ w) / np.linalg.norm(v) / np.linalg.norm(w)
        for v, w in zip(codes.astype(np.float64), full, strict=True)
    ]
    assert min(cosines) > 0.999


def test_vectors_of_tokens_and_weights_of_words_in_parquet(
    hub_checkpoint: Make, table: Path, tmp_path: Path
) -> None:
    """Tokens have lists of vectors of a fixed size, and sparse embeddings a weight for a word."""
    for make, name in ((late, "late"), (sparse, "sparse")):
        model, _ = both(make(hub_checkpoint), tmp_path / name)
        model.run_table("embed", table, tmp_path / f"{name}.parquet", text="review")
    vectors = pyarrow.parquet.read_table(tmp_path / "late.parquet")["embedding"]
    assert vectors.type == pyarrow.list_(pyarrow.list_(pyarrow.float32(), 8))
    weights = pyarrow.parquet.read_table(tmp_path / "sparse.parquet")["embedding"]
    assert pyarrow.types.is_struct(weights.type)


def test_rows_of_integers_have_their_scale(model: Model, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    model.run_table("embed", table, path, text="review", output_dtype="int8")
    expected = model.embed([sentence(k) for k in range(40)])
    found = rows(path)
    vectors = np.array([np.multiply(r["embedding"], r["embedding_scale"]) for r in found])
    np.testing.assert_allclose(vectors, expected, atol=np.abs(expected).max() / 127)
    assert pyarrow.parquet.read_schema(path).field("embedding").type.value_type == "int8"


def test_embeddings_agree_with_sentence_transformers(small: Small, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    ours, source = small("BertModel")
    network = Transformer(str(source))
    theirs = SentenceTransformer(modules=[network, Pooling(16, "mean")], device="cpu")
    texts = [sentence(k) for k in range(8)]
    expected = theirs.encode(texts, normalize_embeddings=True, truncate_dim=6)
    np.testing.assert_allclose(ours.embed(texts, dim=6, normalize=True), expected, atol=1e-5)
    np.testing.assert_allclose(
        ours.encode(texts, truncate_dim=6, normalize_embeddings=True), expected, atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 1000}, "embeddings cannot be cut at 1000 numbers"),
        ({"dim": 0}, "cannot be cut at 0"),
        ({"output_dtype": "int4"}, "embeddings are not written as int4"),
        ({"dims": 3}, "has no option 'dims'"),
        ({"text": "nothing"}, "has no column 'nothing'"),
    ],
)
def test_wrong_options_leave_nothing(
    model: Model, table: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=message):
        model.run_table("embed", table, tmp_path / "o.npy", **{"text": "review", **options})
    assert sorted(tmp_path.iterdir()) == before


# -- interrupted outputs ---------------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 texts, whose end is saved at once."""
    monkeypatch.setattr(Embed, "chunk_size", 4)
    monkeypatch.setattr(resumable, "SECONDS", 0.0)


def stop_after(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Raise KeyboardInterrupt in the writing of a row."""
    write, count = resumable.ResumableOutput.write, iter(range(after))

    def writes(self: Any, row: Any) -> None:
        if next(count, None) is None:
            self._file.write(b"half of a ro")  # which is dropped
            raise KeyboardInterrupt
        write(self, row)

    monkeypatch.setattr(resumable.ResumableOutput, "write", writes)


@pytest.mark.by_default("23-.jsonl")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("after", [6, 23])
def test_an_interrupted_output_is_continued_to_the_byte(
    model: Model, table: Path, tmp_path: Path, often: None, ending: str, after: int
) -> None:
    whole, path = tmp_path / f"whole{ending}", tmp_path / f"out{ending}"
    model.run_table("embed", table, whole, text="review")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, after)
        with pytest.raises(KeyboardInterrupt):
            model.run_table("embed", table, path, text="review")
    assert not path.exists()
    record = json.loads(Path(f"{path}.part.json").read_text())
    assert record["rows"] == after - after % 4
    kept = Path(f"{path}.part").read_bytes()[: record["bytes"]]
    with pytest.raises(UsageError, match="is an interrupted output"):
        model.run_table("embed", table, path, text="review")
    seen, compute = [], Embed.compute

    def computes(self: Embed, items: list[Any], batch: Any) -> Any:
        seen.extend(items)
        return compute(self, items, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Embed, "compute", computes)
        assert model.run_table("embed", table, path, text="review", resume=True) == 40
    assert len(seen) == 40 - record["rows"]
    assert path.read_bytes() == whole.read_bytes()
    if ending in (".jsonl", ".csv", ".tsv"):
        assert path.read_bytes().startswith(kept)
    assert sorted(tmp_path.glob("*.part*")) == []


def test_the_part_of_vectors_is_a_stream_of_arrow(
    model: Model, table: Path, tmp_path: Path, often: None
) -> None:
    path = tmp_path / "out.parquet"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 10)
        with pytest.raises(KeyboardInterrupt):
            model.run_table("embed", table, path, text="review")
    record = json.loads(Path(f"{path}.part.json").read_text())
    content = Path(f"{path}.part").read_bytes()[: record["bytes"]]
    stream = pyarrow.ipc.open_stream(content).read_all()
    assert stream.column("vector").type == pyarrow.list_(pyarrow.float32(), 32)
    vectors = np.array(stream.column("vector").to_pylist(), np.float32)
    np.testing.assert_array_equal(vectors, model.embed([sentence(k) for k in range(8)]))
    values = [json.loads(row) for row in stream.column("row").to_pylist()]
    assert [value["id"] for value in values] == [str(k) for k in range(8)]
    assert {value["embedding"] for value in values} == {None}


@pytest.fixture
def interrupted(model: Model, table: Path, tmp_path: Path, often: None) -> Path:
    path = tmp_path / "out.csv"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 10)
        with pytest.raises(KeyboardInterrupt):
            model.run_table("embed", table, path, text="review")
    return path


def test_another_input_model_or_option_is_refused(
    model: Model, table: Path, tmp_path: Path, interrupted: Path
) -> None:
    def resumed(**options: Any) -> int:
        return model.run_table("embed", table, interrupted, resume=True, **options)

    with pytest.raises(UsageError, match="with different options"):
        resumed(text="review", dim=3)
    with pytest.raises(UsageError, match="with different columns"):
        resumed(text="note")
    part = Path(f"{interrupted}.part")
    whole = part.read_bytes()
    part.write_bytes(whole.replace(b"a", b"b", 1))
    with pytest.raises(VerificationError, match="was changed after zoo wrote it"):
        resumed(text="review")
    part.write_bytes(whole)
    text = table.read_bytes()
    table.write_bytes(text + b"99,a b,c\n")
    with pytest.raises(UsageError, match="with different input"):
        resumed(text="review")
    assert part.read_bytes() == whole
    table.write_bytes(text)
    assert resumed(text="review") == 40


def edit_record(part: Path, **changes: Any) -> None:
    """Change the record of a part, with a correct digest."""
    record = Path(f"{part}.json")
    value = {**json.loads(record.read_text()), **changes, "digest": NO_DIGEST}
    record.write_bytes(add_digest(json.dumps(value).encode()))


@pytest.mark.by_default(".jsonl", ".parquet")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_record_that_the_part_does_not_fit_is_refused(
    model: Model, table: Path, tmp_path: Path, often: None, ending: str
) -> None:
    path = tmp_path / f"out{ending}"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 10)
        with pytest.raises(KeyboardInterrupt):
            model.run_table("embed", table, path, text="review")
    part = Path(f"{path}.part")
    record = json.loads(Path(f"{part}.json").read_text())
    kept = part.read_bytes()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"rows": 10**9}, "has 8 rows, and its record says 1,000,000,000"),
        ({"rows": 7}, "has 8 rows, and its record says 7"),
        ({"rows": -8}, "has 8 rows, and its record says -8"),
        ({"bytes": 10**9}, "was changed after zoo wrote it"),
        ({"bytes": -1}, "was changed after zoo wrote it"),
    ]
    if ending in (".csv", ".tsv"):
        changes.append(({"columns": ["a", "b"]}, "does not have the columns of its record"))
        changes.append(({"columns": []}, "has 9 rows, and its record says 8"))
    if ending == ".npy":
        dtype, size = record["columns"]
        halves = ["<f8", str(int(size) // 2)]
        for columns in (halves, ["O", size], ["x", size], [dtype, "0"], [dtype, "a"], [dtype]):
            changes.append(({"columns": columns}, "does not have the columns of its record"))
    if ending == ".parquet":
        name, size, dimensions = record["columns"]
        half = [name, str(int(size) // 2), dimensions]
        for columns in (half, [name, size, "2"], ["json", size, "1"], [name, "a", "1"], []):
            changes.append(({"columns": columns}, "does not have the columns of its record"))
    for change, message in changes:
        edit_record(part, **{**record, **change})
        with pytest.raises(VerificationError, match=message) as caught:
            model.run_table("embed", table, path, text="review", resume=True)
        assert caught.value.hint == "begin again with --force"
        assert part.read_bytes() == kept
        assert not path.exists()
    edit_record(part, **record)
    assert model.run_table("embed", table, path, text="review", resume=True) == 40


def test_large_integers_of_the_input_are_json_in_parquet(model: Model, tmp_path: Path) -> None:
    lines = ['{"text": "a", "id": 1}', f'{{"text": "b", "id": {2**70}}}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    assert model.run_table("embed", tmp_path / "t.jsonl", tmp_path / "o.parquet") == 2
    written = rows(tmp_path / "o.parquet")
    assert [json.loads(row["id"]) for row in written] == [1, 2**70]
    np.testing.assert_allclose([row["embedding"] for row in written], model.embed(["a", "b"]))


def test_formulas_of_the_input_are_safe_in_a_spreadsheet(model: Model, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,n\n=1+1,-1\n@a,x\n")
    path = tmp_path / "o.csv"
    model.run_table("embed", tmp_path / "t.csv", path, text="text", excel_safe=True)
    assert [(row["text"], row["n"]) for row in rows(path)] == [("'=1+1", "-1"), ("'@a", "x")]
    model.run_table("embed", tmp_path / "t.csv", path, text="text", force=True)
    assert [row["text"] for row in rows(path)] == ["=1+1", "@a"]
    for ending in (".npy", ".jsonl"):
        with pytest.raises(UsageError, match=r"only \.csv and \.tsv have cells"):
            model.run_table("embed", tmp_path / "t.csv", tmp_path / f"o{ending}", excel_safe=True)


def test_force_begins_again(model: Model, table: Path, interrupted: Path) -> None:
    assert model.run_table("embed", table, interrupted, text="note", force=True) == 40
    assert next(row["note"] for row in rows(interrupted)) == 'a, "b"\n0'
    with pytest.raises(UsageError, match="exists"):
        model.run_table("embed", table, interrupted, text="note")


def test_links_are_not_followed(model: Model, table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("mine")
    (tmp_path / "o.csv.part").symlink_to(other)
    for kind in ("force", "resume"):
        options: dict[str, Any] = {kind: True}
        with pytest.raises(UsageError, match="leads through a link"):
            model.run_table("embed", table, tmp_path / "o.csv", text="review", **options)
    assert other.read_text() == "mine"


def test_the_output_is_not_the_input(model: Model, table: Path) -> None:
    with pytest.raises(UsageError, match=r"reviews.csv is read by this command"):
        model.run_table("embed", table, table, text="review", force=True)


def test_a_bad_row_leaves_nothing(model: Model, tmp_path: Path, often: None) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a"}\n' * 30 + '{"text": 3}\n')
    with pytest.raises(UsageError, match=r"t\.jsonl:31: text is of type int"):
        model.run_table("embed", path, tmp_path / "o.jsonl")
    assert sorted(tmp_path.glob("o.*")) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_rows(model: Model, tmp_path: Path, ending: str) -> None:
    (tmp_path / "t.jsonl").write_text("")
    assert model.run_table("embed", tmp_path / "t.jsonl", tmp_path / f"o{ending}") == 0
    if ending == ".npy":
        assert np.load(tmp_path / "o.npy").shape == model.embed([]).shape
    else:
        assert rows(tmp_path / f"o{ending}") == []


def test_columns_of_several_types_are_json_in_parquet(model: Model, tmp_path: Path) -> None:
    values = [1, "x", None, {"b": [1]}, 2.5]
    lines = [json.dumps({"text": "a", "v": value}) for value in values]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    model.run_table("embed", tmp_path / "t.jsonl", tmp_path / "o.parquet")
    found = [row["v"] for row in rows(tmp_path / "o.parquet")]
    assert [None if v is None else json.loads(v) for v in found] == values


@pytest.mark.long
def test_a_killed_command_is_resumed(model: Model, tmp_path: Path) -> None:
    """The process is killed while it computes; the rows of finished windows are kept."""
    path, source = str(model.checkpoint.path), tmp_path / "t.txt"
    source.write_text("".join(f"{sentence(k)}\n" for k in range(30_000)))
    run = ["run", "embed", path, "--input", str(source), "--backend", "cpu", "--threads", "1"]
    assert command(*run, "-o", tmp_path / "whole.npy").returncode == 0
    words = [sys.executable, "-m", "zoo", *run, "-o", str(tmp_path / "o.npy")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (tmp_path / "o.npy.part.json").exists() and time.monotonic() < end:
        assert process.poll() is None, "it ended before a part was saved"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = command(*run, "-o", tmp_path / "o.npy", "--resume")
    assert done.returncode == 0 and "continuing after them" in done.stderr
    assert (tmp_path / "o.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def refusals(path: str, table: Path, folder: Path) -> Iterator[tuple[tuple[Any, ...], str]]:
    run = ("run", "embed", path, "--input", table, "--text", "review")
    yield (*run, "-o", folder / "o.xls"), "the format is unknown"
    yield (*run, "--resume"), "--resume is for --output FILE"
    yield (*run, "--excel-safe"), "--excel-safe is for --output FILE"
    yield (*run, "-o", folder / "o.jsonl", "--excel-safe"), "only .csv and .tsv have cells"
    yield ("run", "embed", path, "-", "-o", folder / "o.csv", "--resume"), "cannot be read again"
    yield ("run", "embed", path, "--input", "none.csv", "-o", folder / "o.csv"), "none.csv"


def test_wrong_commands_have_one_line(model: Model, table: Path, tmp_path: Path) -> None:
    for words, message in refusals(str(model.checkpoint.path), table, tmp_path):
        done = command(*words)
        assert done.returncode == 2 and message in done.stderr, words
        assert done.stderr.count("\n") == 1 and done.stdout == ""
    assert sorted(tmp_path.glob("o.*")) == []


VERBS = (
    *("convert", "distill", "evaluate", "export", "finetune", "finetune_suite"),
    *("layer_similarity", "look", "loss_surface", "pretrain", "probe", "push"),
    *("retokenize", "run", "verify"),
)


def test_dir_lists_what_the_package_offers() -> None:
    names = [name for name in dir(zoo) if name == "__version__" or not name.startswith("_")]
    assert names == sorted(["Model", "__version__", "load", *VERBS])
