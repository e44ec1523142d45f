"""The benchmark of many files: its texts, and its check of the outputs."""

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from benchmarks.many_files import check, write_texts


def test_outputs_are_compared_row_by_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts(tmp_path / "one", texts=11, files=3)
    write_texts(tmp_path / "same", texts=11, files=3)
    sizes = []
    for path in sorted((tmp_path / "one").iterdir()):
        sizes.append(pyarrow.parquet.read_metadata(path).num_rows)
    assert sizes == [3, 4, 4]
    check(tmp_path / "same", tmp_path / "one", 11)
    assert capsys.readouterr().out == "  every row once; the bytes of one process\n"
    path = tmp_path / "same" / "part-00001.parquet"
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.slice(1), path)
    with pytest.raises(SystemExit, match="does not have every row once"):
        check(tmp_path / "same", tmp_path / "one", 11)
