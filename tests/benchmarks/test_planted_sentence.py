"""The benchmark of planted sentences: its documents, ranks, and a run of seconds."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.planted_sentence import main, make_documents, ranks
from tests.checkpoints import Make, hub_checkpoint

__all__ = ["hub_checkpoint"]
SENTENCES = [f"Sentence {number} is here." for number in range(60)]


def test_each_document_has_a_sentence_of_its_own() -> None:
    lengths = [5] * len(SENTENCES)
    documents = make_documents(SENTENCES, lengths, 5, 40, seed=1)
    assert documents == make_documents(SENTENCES, lengths, 5, 40, seed=1)
    assert documents != make_documents(SENTENCES, lengths, 5, 40, seed=2)
    for number, item in enumerate(documents):
        assert [other.document.count(item.sentence) for other in documents] == [
            int(k == number) for k in range(5)
        ]
        remaining = item.document.replace(item.sentence, "").split()
        assert remaining == " ".join(SENTENCES[8 * number : 8 * number + 8]).split()
        owner, place = item.sentence[:-1].split(" is kept in ")
        assert item.query == f"Where is {owner.replace('The', 'the')} kept?"
        assert place not in item.query
    with pytest.raises(SystemExit, match="the corpus has text for 7 documents"):
        make_documents(SENTENCES, lengths, 8, 40, seed=1)


def test_ties_count_against_a_document() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0], [5.0, 4.0, 3.0]])
    assert ranks(scores).tolist() == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_all_ways_are_measured(
    hub_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = hub_checkpoint("BertModel")
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(SENTENCES))
    options = ["--model", str(model), "--long-model", str(model), "--stride", "4"]
    options += ["--passage-tokens", "20"]
    sizes = ["--documents", "3", "--tokens", "60", "--json", str(tmp_path / "results.json")]
    main([str(folder), *options, *sizes])
    results = json.loads((tmp_path / "results.json").read_text())
    printed = capsys.readouterr().out
    assert len(results) == 8
    for name, values in results.items():
        assert f"| {name} | {values['recall_at_1']:.3f} |" in printed
        assert 1 / 3 <= values["mrr"] <= 1
