"""The benchmark of labels in words runs, and draws as many texts of each label."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.zero_shot import NOVELS, main, read_tables
from tests.finetuning.conftest import Pretrained, pretrained
from tests.inference.conftest import hub_checkpoint
from zoo.cli import cli

__all__ = ["hub_checkpoint", "pretrained"]
SICK = "sentence_A\tsentence_B\tentailment_judgment\n"
LABELS = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    pairs = [f"{'abc'[n % 3]} d\t{'hij'[n % 3]} e\t{LABELS[n % 3]}\n" for n in range(6)]
    novel = "\n\n".join(["a b", *(" ".join(list("abcde") * n) for n in (4, 5, 60))])
    reviews = [f"# newdoc id = reviews-{n}\n# text = a {n}\n1\ta\n# text = b\n" for n in range(3)]
    files = {
        "sick/SICK_train.txt": SICK + "".join(pairs),
        "sick/SICK_trial.txt": SICK + "".join(pairs[:3]),
        "ud_ewt/dev.conllu": "# newdoc id = email-x\n# text = c d\n# text = e\n# text = f\n",
        "ud_ewt/test.conllu": "".join(reviews),
        "sst2/dev.tsv": "".join(f"{'abh'[n % 3]} i\t{n % 2}\n" for n in range(6)),
        **{f"corpus/train/{name}.txt": novel for name in NOVELS},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def run_command(*words: object) -> str:
    done = CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.long
def test_a_table_is_printed(
    pretrained: Pretrained,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.zero_shot.zoo", run_command)  # in this process
    _, source = pretrained("BertModel")
    main([str(source), str(data), "--rows", "2"])
    rows = [re.split(r" *\| *", line)[1:-1] for line in capsys.readouterr().out.splitlines()]
    found = {row[0]: row[1:] for row in rows if len(row) == 7}
    # one e-mail, so one review; of each novel the two paragraphs of the right length
    counts = {name: cells[:2] for name, cells in found.items() if "labels" in name}
    assert counts == {
        "kinds, 5 labels": ["2", "0.20"],
        "novels, 5 labels": ["10", "0.20"],
        "sst2, 2 labels": ["4", "0.50"],
    }
    for name in counts:
        accuracy, interval = float(found[name][2]), re.findall(r"\d\.\d+", found[name][3])
        assert 0 <= float(interval[0]) <= accuracy <= float(interval[1]) <= 1


def test_texts_have_the_labels_of_their_sources(data: Path) -> None:
    tables = read_tables(data)
    assert tables["kinds"][:2] == [("c d e", "email"), ("a 0 b", "reviews")]
    assert len(tables["novels"]) == 2 * len(NOVELS)
    assert tables["sst2"][0] == ("a i", "0")
