"""Texts and words of tables become samples with types for the control task."""

from pathlib import Path

from zoo.data.readers.problems import RowProblems
from zoo.probing.tasks.base import ProbeColumns, ProbedText, ProbeTask
from zoo.probing.tasks.texts import TextProbe
from zoo.probing.tasks.words import WordProbe


def read(task: ProbeTask, path: Path, content: str, columns: ProbeColumns) -> list[ProbedText]:
    path.write_text(content)
    with RowProblems() as problems:
        return task.read([str(path)], columns, problems)


def test_a_text_has_the_control_type_of_its_longest_word(tmp_path: Path) -> None:
    table = "first\tsecond\tclass\na quiet film\ta cleverer one\t1\nfine\t\t0\n"
    columns = ProbeColumns("first", "second", "class")
    texts = read(TextProbe(), tmp_path / "t.tsv", table, columns)
    assert [(text.text, text.pair) for text in texts] == [
        ("a quiet film", "a cleverer one"),
        ("fine", ""),
    ]
    examples = [example for text in texts for example in text.examples]
    assert [(each.label, each.control_type) for each in examples] == [
        ("1", "cleverer"),
        ("0", "fine"),
    ]


def test_entities_are_repaired_as_in_fine_tuning(tmp_path: Path) -> None:
    content = "Ann\tI-PER\nsees\tO\nYork\tI-LOC\n"
    (text,) = read(WordProbe(), tmp_path / "t.conll", content, ProbeColumns())
    assert text.words == ("Ann", "sees", "York")
    assert [each.label for each in text.examples] == ["B-PER", "O", "B-LOC"]
    assert [each.control_type for each in text.examples] == ["Ann", "sees", "York"]
    assert text.examples[2].location == f"{tmp_path / 't.conll'}:3"
