"""Texts with classes, in SentEval's files."""

from pathlib import Path

import pytest

from zoo.data.readers.problems import RowError
from zoo.data.readers.senteval import (
    LabelledRow,
    read_class_file,
    read_mrpc,
    read_probing,
    read_sst,
    read_trec,
)
from zoo.errors import SourceError


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def test_a_file_of_one_class(tmp_path: Path) -> None:
    path = write(tmp_path / "custrev.pos", "très  bien .\n\ngood\r\n", "latin-1")
    assert read_class_file(path, 1) == [
        LabelledRow(("très bien .",), 1),
        LabelledRow(("",), 1),
        LabelledRow(("good",), 1),
    ]
    with pytest.raises(SourceError, match=r"custrev.pos has no texts"):
        read_class_file(write(path, ""), 1)


def test_sentences_of_sst(tmp_path: Path) -> None:
    path = write(tmp_path / "sentiment-dev", "a fine film .\t1\ndull \t 0\n")
    assert read_sst(path) == [LabelledRow(("a fine film .",), 1), LabelledRow(("dull",), 0)]
    write(path, "fine\t2\n")
    with pytest.raises(RowError, match="sentiment-dev:1 has the label '2', which the task does"):
        read_sst(path)


def test_questions_of_trec(tmp_path: Path) -> None:
    path = tmp_path / "train_5500.label"
    write(path, "DESC:manner How did ser\xadfdom  go ?\nNUM:date When ?\n", "latin-1")
    assert read_trec(path) == [
        LabelledRow(("How did ser\xadfdom go ?",), 1),
        LabelledRow(("When ?",), 5),
    ]
    write(path, "NUM:date When ?\nWHAT:x y\n")
    with pytest.raises(RowError, match=r"label:2 has the label 'WHAT'.*\n?.*ABBR, DESC, ENTY"):
        read_trec(path)
    write(path, "no class\n")
    with pytest.raises(RowError, match="label:1 is 'no class', not a question with its class"):
        read_trec(path)


def test_pairs_of_mrpc(tmp_path: Path) -> None:
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    path = write(tmp_path / "msr_paraphrase_test.txt", f'{header}1\t2\t3\tHe said "no\tNo , he\n')
    assert read_mrpc(path) == [LabelledRow(('He said "no', "No , he"), 1)]


def test_splits_of_a_probing_task(tmp_path: Path) -> None:
    path = tmp_path / "past_present.txt"
    rows = "tr\tPRES\tHe goes .\ntr\tPAST\tHe went .\nva\tPAST\t x\tI did .\nte\tPRES\tI do .\n"
    data = read_probing(write(path, rows))
    assert data.labels == ["PAST", "PRES"]
    assert data.train == [LabelledRow(("He goes .",), 1), LabelledRow(("He went .",), 0)]
    assert data.validation == [LabelledRow(("I did .",), 0)]
    assert data.test == [LabelledRow(("I do .",), 1)]
    with pytest.raises(SourceError, match="has no rows of the split te"):
        read_probing(write(path, rows.replace("te\t", "va\t")))
    with pytest.raises(RowError, match="txt:1 is of the split 'xx'"):
        read_probing(write(path, "xx\ta\tb\n"))
    with pytest.raises(RowError, match="has the label 'FUT'"):
        read_probing(write(path, rows + "te\tFUT\tI shall .\n"))
