"""Sentences of CoLA and their phenomena."""

from pathlib import Path

import pytest

from zoo.data.readers.cola import JudgedSentence, read_annotations, read_cola
from zoo.data.readers.problems import RowError
from zoo.errors import SourceError


def test_judged_sentences(tmp_path: Path) -> None:
    path = tmp_path / "in_domain_dev.tsv"
    path.write_text('gj04\t1\t\tThe sailors rode "it .\ncj99\t0\t*\tAs you eat the most, no.\n')
    assert read_cola(path) == [
        JudgedSentence('The sailors rode "it .', 1),
        JudgedSentence("As you eat the most, no.", 0),
    ]
    path.write_text("gj04\t?\t\tHe goes.\n")
    with pytest.raises(RowError, match=r"in_domain_dev.tsv:1 has the label '\?'"):
        read_cola(path)


def test_phenomena(tmp_path: Path) -> None:
    path = tmp_path / "CoLA_grammatical_annotations_major_features.tsv"
    header = "Domain\tSource\tLabel\tSentence\tSimple\tQuestion\n"
    path.write_text(f"{header}in\tgj04\t1\tHe goes.\t1\t0\nin\tgj04\t0\tWho goes he?\t1\t1\n")
    annotations = read_annotations(path)
    assert annotations.all_sentences == {"He goes.", "Who goes he?"}
    assert annotations.sentences == {
        "Simple": {"He goes.", "Who goes he?"},
        "Question": {"Who goes he?"},
    }
    path.write_text(f"{header}in\tgj04\t1\tHe goes.\tyes\t0\n")
    with pytest.raises(RowError, match="tsv:2: Simple is 'yes'"):
        read_annotations(path)
    path.write_text("Domain\tSource\tLabel\tText\tSimple\n")
    with pytest.raises(SourceError, match="has no column Sentence, or no phenomena"):
        read_annotations(path)
