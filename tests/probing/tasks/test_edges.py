"""Edges of jiant's JSON lines and of CoNLL-U: spans, labels, vectors and errors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import checkpoints
from tests.checkpoints import Make
from tests.probing.making import converted, reader_of
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.probing.layers import example_rows
from zoo.probing.probing import read_data
from zoo.probing.settings import ProbeRecipe
from zoo.probing.tasks.base import ProbeColumns, ProbedText
from zoo.probing.tasks.edges import EdgeProbe

hub_checkpoint = checkpoints.hub_checkpoint
ROW = {
    "text": "a cab  i ba",
    "targets": [
        {"span1": [1, 2], "span2": [0, 1], "label": "det"},
        {"span1": [3, 4], "span2": [0, 2], "label": ["subject"]},
    ],
}
TREE = """# text = a cab is bad
1\ta\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tcab\t_\tNOUN\t_\t_\t4\tnsubj\t_\t_
2.1\tx\t_\tX\t_\t_\t_\t_\t_\t_
3\tis\t_\tAUX\t_\t_\t4\tcop:own\t_\t_
4\tbad\t_\tADJ\t_\t_\t0\troot\t_\t_

"""


def read(path: Path, content: str, columns: ProbeColumns | None = None) -> list[ProbedText]:
    path.write_text(content)
    with RowProblems() as problems:
        return EdgeProbe().read([str(path)], columns or ProbeColumns(), problems)


def edges(text: ProbedText) -> list[tuple[Any, ...]]:
    found = []
    for example in text.examples:
        spans = [text.spans[number] for number in example.spans]
        found.append((*spans, example.label, example.control_type, example.location))
    return found


def test_targets_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "edges.jsonl"
    (text,) = read(path, json.dumps(ROW) + '\n{"text": "a", "targets": []}\n')
    assert text.text == "a cab i ba"
    assert text.spans == ((1, 2), (0, 1), (3, 4), (0, 2))
    assert edges(text) == [
        ((1, 2), (0, 1), "det", "a", f"{path}:1, target 1"),
        ((3, 4), (0, 2), "subject", "a cab", f"{path}:1, target 2"),
    ]


def test_relations_of_conllu_lead_from_heads_to_dependents(tmp_path: Path) -> None:
    path = tmp_path / "tree.conllu"
    first, second = read(path, TREE * 2)
    assert first.words == ("a", "cab", "is", "bad")
    assert edges(first) == [
        ((1, 2), (0, 1), "det", "a", f"{path}:2"),
        ((3, 4), (1, 2), "nsubj", "cab", f"{path}:3"),
        ((3, 4), (2, 3), "cop:own", "is", f"{path}:5"),
    ]
    assert second.location == f"{path}:9"


def test_vectors_are_the_means_of_both_spans(hub_checkpoint: Make, tmp_path: Path) -> None:
    (text,) = read(tmp_path / "edges.jsonl", json.dumps(ROW) + "\n")
    reader = reader_of(converted(hub_checkpoint, "BertForMaskedLM", tmp_path))
    (encoded,) = reader.tokenizer.encode([text.text], max_tokens=None)
    vectors = reader.read([text], "mean", tmp_path)
    rows, _, _ = example_rows([text], vectors.has_tokens)
    states = reader.session.hidden_states({"input_ids": np.array([encoded.ids])})
    tokens = ["[CLS]", "a", "c", "##a", "##b", "i", "b", "##a", "[SEP]"]
    assert list(encoded.tokens) == tokens
    # Edges of the words cab, a, and ba, "a cab".
    expected_tokens = [([2, 3, 4], [1]), ([6, 7], [1, 2, 3, 4])]
    for array, state in zip(vectors.arrays, states, strict=True):
        for row, (head, dependent) in zip(rows, expected_tokens, strict=True):
            expected = np.concatenate([state[0, head].mean(0), state[0, dependent].mean(0)])
            np.testing.assert_allclose(array[row].reshape(-1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"span1": [0, 5], "label": "x"}, "span1 is [0, 5], and the text has 4 words"),
        ({"span1": [1, 1], "label": "x"}, "span1 is [1, 1]"),
        ({"span1": [0, 1.5], "label": "x"}, "span1 is [0, 1.5]; give two numbers"),
        ({"span1": "0-1", "label": "x"}, "span1 is '0-1'; give two numbers"),
        ({"span1": [0, 1], "label": ["x", "y"]}, "target 1 has 2 labels; a probe predicts one"),
        ({"span1": [0, 1]}, "target 1 has no label"),
        ({"span2": [0, 1], "label": "x"}, "target 1 has no span1"),
        ([0, 1], "target 1 is not an object"),
    ],
)
def test_targets_that_cannot_be_used(tmp_path: Path, target: Any, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read(tmp_path / "e.jsonl", json.dumps({"text": ROW["text"], "targets": [target]}) + "\n")
    assert message in str(refusal.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    broken = TREE.replace("\t4\tnsubj", "\t9\tnsubj")
    with pytest.raises(UsageError, match=r"t.conllu:3: the head is '9'"):
        read(tmp_path / "t.conllu", broken)
    with pytest.raises(UsageError, match="leave --label out"):
        read(tmp_path / "t.conllu", TREE, ProbeColumns(label="upos"))
    with pytest.raises(UsageError, match="targets is not a list"):
        read(tmp_path / "e.jsonl", '{"text": "a", "targets": 3}\n')
    single = {"text": "a b", "targets": [{"span1": [0, 1], "label": "det"}]}
    path = tmp_path / "mixed.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n{json.dumps(single)}\n")
    paths = [str(path)]
    with pytest.raises(UsageError, match="2, target 1 has 1 spans, and the first example has 2"):
        read_data(EdgeProbe(), paths, paths, ProbeColumns(), ProbeRecipe())
    path.write_text('{"text": "a b", "targets": []}\n')
    with pytest.raises(UsageError, match="the training data has no labels"):
        read_data(EdgeProbe(), paths, paths, ProbeColumns(), ProbeRecipe())
