"""Tables of every format, labels in order, and samples that are held out by their contents."""

import json
from pathlib import Path

import pytest

from zoo.data.readers import delimited
from zoo.data.readers.labelled import (
    Columns,
    Sample,
    hold_out,
    label_name,
    label_number,
    read_samples,
    sort_labels,
    split_labels,
)
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError, VerificationError
from zoo.tasks.token_classification.data import read_words

ROWS = [('He said "no', 'a, "quoted" word', 0), ("two\u2028parts", "'", 1)]


def sample(text: str, label: object = 0) -> Sample:
    return Sample(text, None, label, "t.tsv:1")


def pairs(path: Path) -> list[tuple[str, str | None, str]]:
    samples = read_samples([path], Columns("a", "label", "b"))
    return [(s.text, s.pair, label_name(s.label, s.location)) for s in samples]


EXPECTED = [(a, b, str(label)) for a, b, label in ROWS]


def test_tabs_have_no_quotes_and_a_mark_may_precede_the_header(tmp_path: Path) -> None:
    lines = ["\ufeffa\tb\tlabel", *(f"{a}\t{b}\t{label}" for a, b, label in ROWS)]
    (tmp_path / "t.tsv").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    assert pairs(tmp_path / "t.tsv") == EXPECTED


def test_commas_have_quotes_and_texts_may_have_lines(tmp_path: Path) -> None:
    import csv

    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("a", "b", "label"), *ROWS, ("x\ny", "z", 2)])
    assert pairs(tmp_path / "t.csv") == [*EXPECTED, ("x\ny", "z", "2")]


def test_json_lines(tmp_path: Path) -> None:
    rows = (json.dumps({"a": a, "b": b, "label": label}) for a, b, label in ROWS)
    (tmp_path / "t.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert pairs(tmp_path / "t.jsonl") == EXPECTED


def test_parquet(tmp_path: Path) -> None:
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    a, b, label = (list(values) for values in zip(*ROWS, strict=True))
    table = pyarrow.table({"label": label, "a": a, "b": b})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert pairs(tmp_path / "t.parquet") == EXPECTED
    with pytest.raises(UsageError, match="has no column 'text'"):
        read_samples([tmp_path / "t.parquet"], Columns())
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(VerificationError, match="is not a Parquet file"):
        pairs(tmp_path / "t.parquet")


def test_columns_are_counted_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("id\t1\t\tA text.\nid\t0\t*\tText a.\n")
    samples = read_samples([tmp_path / "t.tsv"], Columns("4", "2"))
    assert [(s.text, s.label) for s in samples] == [("A text.", "1"), ("Text a.", "0")]
    with pytest.raises(UsageError, match="has no column '5'"):
        read_samples([tmp_path / "t.tsv"], Columns("5", "2"))


def test_empty_cells_at_the_ends_of_a_line_are_cells(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("note\ttext\tlabel\tmore\n\ta\t1\t\n")
    (only,) = read_samples([tmp_path / "t.tsv"], Columns())
    assert (only.text, only.label) == ("a", "1")


@pytest.mark.parametrize("label", ["null", '""', '" "'])
def test_a_row_without_a_label_is_refused(tmp_path: Path, label: str) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"text": "a", "label": {label}}}\n')
    with pytest.raises(UsageError, match=r"t\.jsonl:1 has no label"):
        read_samples([tmp_path / "t.jsonl"], Columns())
    assert len(read_samples([tmp_path / "t.jsonl"], Columns(), unlabelled=True)) == 1


def test_a_column_that_is_there_twice_is_refused_if_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("text\tlabel\tnote\tnote\ttext\na\t1\tx\ty\tb\n")
    with pytest.raises(UsageError, match=r"t\.tsv:1 has several columns 'text'; rename all but"):
        read_samples([tmp_path / "t.tsv"], Columns())
    (tmp_path / "t.tsv").write_text("text\tlabel\tnote\tnote\na\t1\tx\ty\n")
    assert [s.text for s in read_samples([tmp_path / "t.tsv"], Columns())] == ["a"]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(f"text\tlabel\n{'ab ' * 50_000}\t1\n")
    (only,) = read_samples([tmp_path / "t.tsv"], Columns())
    assert len(only.text) == 150_000


def test_integers_are_sorted_by_number() -> None:
    assert sort_labels(["10", "9", "-1", "9"]) == ("-1", "9", "10")
    assert sort_labels(["10", "9", "x"]) == ("10", "9", "x")


def test_names_and_numbers_of_labels() -> None:
    assert [label_name(v, "") for v in (" a ", 3, 2.0, True)] == ["a", "3", "2", "true"]
    assert [label_number(v, "") for v in ("1.5", 2)] == [1.5, 2.0]
    assert split_labels(sample("t", "a| b|"), "|") == ("a", "b")
    assert split_labels(sample("t", [1, "b"]), ",") == ("1", "b")
    assert split_labels(sample("t", None), ",") == ()
    for value in ("nan", "inf", "x", None, True):
        with pytest.raises(UsageError, match="is not a number"):
            label_number(value, "t.tsv:3")


def lines_of(problems: RowProblems) -> list[str]:
    return [error.what.rpartition("/")[2] for error in problems.first_errors]


def test_reading_goes_on_after_a_quote_that_is_not_closed(tmp_path: Path) -> None:
    """With the line after it, whatever the next quote is."""
    rows = ['"x\ny",0', '"a,1', "b,2", '"c, d",3', 'e,"4"', '"f,5', "g,6"]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    problems = RowProblems(skip=True)
    samples = read_samples([tmp_path / "t.csv"], Columns(), problems)
    assert [s.label for s in samples] == ["0", "2", "3", "4", "6"]
    assert [s.location.rpartition(":")[2] for s in samples] == ["2", "5", "6", "7", "9"]
    assert lines_of(problems) == [f"t.csv:{k} opens a quote that is not closed" for k in (4, 8)]


def test_a_sentence_is_skipped_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "t.conll").write_text("a X\nb\nc Y\n\nd\tX\ne\t \tX\n\nf X\n")
    problems = RowProblems(skip=True)
    samples = read_words([tmp_path / "t.conll"], Columns("1", "2"), problems)
    assert [s.words for s in samples] == [("f",)]
    assert [line.partition(" ")[0] for line in lines_of(problems)] == ["t.conll:2", "t.conll:6"]


def test_json_lines_that_lack_a_column(tmp_path: Path) -> None:
    """Before and after a row that has it; where no row has, its name is wrong."""
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n{"text": "b", "label": 1}\n{"text": "c"}\n[\n')
    problems = RowProblems(skip=True)
    (sample,) = read_samples([tmp_path / "t.jsonl"], Columns(), problems)
    assert sample.text == "b" and problems.count == 3
    (tmp_path / "t.jsonl").write_text('{"txt": "a", "label": 1}\n' * 200)
    with pytest.raises(UsageError, match=r"t\.jsonl:1 has no column 'text'; did you mean txt"):
        read_samples([tmp_path / "t.jsonl"], Columns(), problems)


def test_the_same_samples_are_held_out_in_any_order() -> None:
    samples = [sample(str(k % 900)) for k in range(1000)]
    rest, held = hold_out(samples, 0.1)
    assert 60 < len(held) < 140
    assert len(rest) + len(held) == 1000
    assert not {s.text for s in rest} & {s.text for s in held}, "equal texts are on one side"
    again = hold_out([*reversed(samples), *(sample(f"new {k}") for k in range(500))], 0.1)[1]
    assert {s.text for s in held} == {s.text for s in again if not s.text.startswith("new")}


def test_at_least_one_sample_is_held_out() -> None:
    rest, held = hold_out([sample(name) for name in "abc"], 1e-9)
    assert (len(rest), len(held)) == (2, 1)
    with pytest.raises(UsageError, match="cannot be split"):
        hold_out([sample("a")], 0.1)


def test_blank_lines_are_counted_and_do_not_reach_the_csv_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed, following = list[str](), delimited._Lines.__next__

    def counted(lines: delimited._Lines) -> str:
        parsed.append(following(lines))
        return parsed[-1]

    monkeypatch.setattr(delimited._Lines, "__next__", counted)
    path, blank = tmp_path / "t.csv", "\n" * 5000
    rows = ['"a\n\nb",1\r\n', '"open,2\n\n', '"c""d",3\n', "\n e,4\n\n"]
    path.write_text(f"\r\n{blank}text,label\n\n{blank.join(rows)}", "utf-8", newline="")
    problems = RowProblems(skip=True)
    samples = read_samples([path], Columns(), problems)
    lines = path.read_text("utf-8").split("\n")
    where = [1 + next(k for k, line in enumerate(lines) if t in line) for t in ('"a', '"c', " e")]
    assert [(s.text, s.label) for s in samples] == [("a\n\nb", "1"), ('c"d', "3"), (" e", "4")]
    assert [s.location for s in samples] == [f"{path}:{number}" for number in where]
    assert problems.count == 1
    assert len(parsed) < 5200  # those after the quote that is not closed, up to the next one
