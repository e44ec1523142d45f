"""The plan of a job: names of outputs, the order of files, and inputs that cannot be one job."""

import gzip
import logging
import os
from pathlib import Path

import pytest

from zoo.data.many_files.plan import FileStamp, is_many, output_name, plan_files
from zoo.errors import SourceError, UsageError, VerificationError, ZooError


def write(folder: Path, *names: str, content: str = "text\na\n") -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        if name.endswith(".gz"):
            data = gzip.compress(data)
        path.write_bytes(data)
    return folder


def outputs(plan_inputs: list[str], folder: Path, suffix: str | None = None) -> dict[str, str]:
    """Return name of the input -> path of the output below the folder."""
    plan = plan_files(plan_inputs, folder, suffix)
    return {job.name: job.output.relative_to(folder).as_posix() for job in plan.jobs}


def test_an_output_has_the_path_of_its_input(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "b.csv", "a/z.csv", "a/b.csv.gz")
    assert outputs([str(source)], tmp_path / "out") == {
        "a/b.csv.gz": "a/b.csv",
        "a/z.csv": "a/z.csv",
        "b.csv": "b.csv",
    }
    pattern = str(source / "*" / "*.csv")
    assert outputs([pattern], tmp_path / "out", ".npy") == {"a/z.csv": "a/z.npy"}
    assert outputs([str(source / "b.csv")], tmp_path / "out") == {"b.csv": "b.csv"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", "a.jsonl"),
        ("a.JSON", "a.jsonl"),
        ("a.csv.zst", "a.jsonl"),
        ("part-00001", "part-00001.jsonl"),
        ("notes.v2", "notes.v2.jsonl"),
        ("a/b.c/d.ndjson", "a/b.c/d.jsonl"),
    ],
)
def test_an_ending_of_a_format_is_replaced(name: str, expected: str) -> None:
    assert output_name(name, ".jsonl") == expected


def test_the_order_does_not_depend_on_the_command(tmp_path: Path) -> None:
    source = write(tmp_path / "in", *(f"{k}.csv" for k in range(12)))
    files = [str(path) for path in source.iterdir()]
    orders = []
    for inputs in ([str(source)], files, sorted(files, reverse=True), [files[3], str(source)]):
        orders.append([job.name for job in plan_files(inputs, tmp_path / "out").jobs])
    assert orders[0] == sorted(path.name for path in source.iterdir())
    assert orders[1:] == orders[:1] * 3


def test_several_inputs_are_a_folder_a_pattern_or_a_list(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "a.csv", "b[1].csv")
    assert is_many([str(source)]) and is_many([str(source / "*.csv")]) and is_many(["a", "b"])
    assert not is_many([]) and not is_many([str(source / "a.csv")]) and not is_many(["-"])
    assert not is_many([str(source / "b[1].csv")])
    assert not is_many(["a\0b"])


def test_hidden_files_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = write(tmp_path / "in", "a.csv", "_SUCCESS", "_temporary/b.csv", ".c.csv")
    with caplog.at_level(logging.INFO, "zoo"):
        assert list(outputs([str(source)], tmp_path / "out")) == ["a.csv"]
    assert "left out 2 hidden files: _SUCCESS, _temporary/b.csv" in caplog.text
    # A file that is named is read.
    assert list(outputs([str(source / "_temporary" / "b.csv")], tmp_path / "out")) == ["b.csv"]


def refuse(inputs: list[str], folder: Path, error: type[ZooError], message: str) -> None:
    with pytest.raises(error) as refusal:
        plan_files(inputs, folder)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_folders_without_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    refuse([str(tmp_path / "empty")], out, SourceError, "there are no files in")
    refuse([str(tmp_path / "absent")], out, SourceError, "does not exist")
    refuse([str(tmp_path / "*.csv")], out, SourceError, "matches nothing")
    hidden = write(tmp_path / "hidden", "_a.csv")
    refuse([str(hidden)], out, SourceError, "no files in " + f"{hidden} but 1 hidden file: _a.csv")


@pytest.mark.parametrize("ending", [".part", ".part.json", ".tmp", ".crdownload", ".PART"])
def test_a_partial_file_is_refused(tmp_path: Path, ending: str) -> None:
    source = write(tmp_path / "in", "a.csv", f"b.csv{ending}")
    refuse([str(source)], tmp_path / "out", UsageError, f"b.csv{ending} is a partial file")


def test_two_inputs_of_one_output_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "a.txt", "a.text", "b/a.txt", "c/a.txt")
    out = tmp_path / "out"
    plan_files([str(source)], out)
    write(source, "a.csv", "a.csv.gz")
    tables = [str(source / "a.csv"), str(source / "a.csv.gz")]
    refuse(tables, out, UsageError, f"would both be written to {out / 'a.csv'}")
    same_names = [str(source / "b" / "a.txt"), str(source / "c" / "a.txt")]
    refuse(same_names, out, UsageError, "would both be written to")


def test_inputs_and_outputs_are_in_different_folders(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "a.csv")
    refuse([str(source)], source / "out", UsageError, "is inside the input")
    refuse([str(source)], source, UsageError, "is inside the input")
    # A pattern does not read the output, but files of an output are no input.
    plan_files([str(source / "*.csv")], source / "out")
    refuse([str(source / "*.csv")], tmp_path, UsageError, "is inside the output")
    link = tmp_path / "link"
    link.symlink_to(source)
    refuse([str(link)], source / "out", UsageError, "is inside the input")


def test_files_of_different_formats_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "a.csv", "README.md")
    refuse([str(source)], tmp_path / "out", UsageError, "have different formats")
    plan = plan_files([str(source)], tmp_path / "out", has_tables=False)
    assert [job.output.name for job in plan.jobs] == ["README.md.jsonl", "a.jsonl"]


def test_tables_of_other_columns_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "a.csv", content="id,text\n1,a\n")
    write(source, "b.csv", content="text,id\nb,2\n")
    plan = plan_files([str(source)], tmp_path / "out")
    plan.require_columns(plan.jobs)
    write(source, "c.csv", content="id,text,more\n3,c,d\n")
    with pytest.raises(UsageError, match=r"c\.csv has the column 'more', unlike .*a\.csv"):
        plan = plan_files([str(source)], tmp_path / "out")
        plan.require_columns(plan.jobs)
    write(source, "c.csv", content="text\nc\n")
    with pytest.raises(UsageError, match=r"c\.csv lacks the column 'id', unlike .*a\.csv"):
        plan.require_columns(plan.jobs[2:])


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv") / "a.csv"
    stamp = FileStamp.read(path)
    stamp.require_same(path)
    os.utime(path, ns=(0, stamp.modified_ns + 1))
    with pytest.raises(VerificationError, match=r"a\.csv changed while it was read"):
        stamp.require_same(path)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        stamp.require_same(path)
