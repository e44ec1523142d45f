"""Labelled spans of token classifiers, against transformers' token-classification pipeline."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from click.testing import CliRunner

from tests.checkpoints import VOCABULARY
from tests.inference.conftest import Small
from tests.tasks.causal_lm.making import train_tokenizer
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.cli.inference.run import command
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.hub.source import CheckpointDir
from zoo.tasks.token_classification.entities import AGGREGATES, Labelled, labelled_spans

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC")
NAMES = {"id2label": {str(k): label for k, label in enumerate(LABELS)}}


def words(count: int, seed: int) -> str:
    """Return random words of one to three tokens, some of them unknown."""
    rng = np.random.default_rng(seed)
    parts = [*(part.removeprefix("##") for part in VOCABULARY[5:]), "?"]
    return " ".join("".join(rng.choice(parts, rng.integers(1, 4))) for _ in range(count))


TEXTS = [words(12, seed) for seed in range(8)] + ["a", "ab ab ab", ""]


def expected_entities(folder: Path, kind: str, texts: list[str], aggregate: str) -> Any:
    model = getattr(transformers, kind).from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pipeline: Any = transformers.pipeline(
        "token-classification",
        model=model,
        tokenizer=tokenizer,
        aggregation_strategy=aggregate,
    )
    return [pipeline(text) for text in texts]


def assert_entities(results: list[dict[str, Any]], expected: Any) -> None:
    for result, spans in zip(results, expected, strict=True):
        assert "tokens" not in result
        assert len(result["entities"]) == len(spans)
        for entity, span in zip(result["entities"], spans, strict=True):
            assert entity["label"] == span["entity_group"]
            assert entity["score"] == pytest.approx(float(span["score"]), abs=1e-4)
            assert (entity["start"], entity["end"]) == (span["start"], span["end"])
            assert entity["text"] == result["text"][span["start"] : span["end"]]


@pytest.mark.by_default("first-MISC", "average-I-MISC")
@pytest.mark.parametrize("last", ["MISC", "I-MISC"])
@pytest.mark.parametrize("aggregate", [a for a in AGGREGATES if a != "none"])
def test_spans_are_those_of_the_pipeline(small: Small, aggregate: Any, last: str) -> None:
    names = {"id2label": {str(k): label for k, label in enumerate((*LABELS[:-1], last))}}
    model, folder = small("BertForTokenClassification", num_labels=len(LABELS), hub=names)
    expected = expected_entities(folder, "BertForTokenClassification", TEXTS, aggregate)
    assert sum(map(len, expected)) > 30
    assert_entities(model.classify(TEXTS, aggregate=aggregate), expected)


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("aggregate", ["simple", "average"])
def test_spans_of_a_tokenizer_without_prefixes(tmp_path: Path, aggregate: Any) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    size = train_tokenizer(hub)
    kind: Any = transformers.GPT2ForTokenClassification
    shape: dict[str, Any] = {"vocab_size": size, "n_embd": 32, "n_layer": 2, "n_head": 4}
    labels: dict[str, Any] = {"id2label": dict(enumerate(LABELS)), "num_labels": len(LABELS)}
    network = kind(transformers.GPT2Config(**shape, **labels))
    network.classifier.weight.data *= 20
    network.save_pretrained(hub)
    convert(CheckpointDir(hub, "test"), tmp_path / "ours")
    checkpoint = load_checkpoint(tmp_path / "ours")
    model = Model(checkpoint, open_session(checkpoint, "cpu"))
    texts = ["the cat sat on the mat, a dog ran.", " a caf\u00e9"]
    expected = expected_entities(hub, "GPT2ForTokenClassification", texts, aggregate)
    assert_entities(model.classify(texts, aggregate=aggregate), expected)


SPANS = {
    "no types": (["B", "I", "O", "I", "B", "B", "I"], "_", [(0, 2), (3, 4), (4, 5), (5, 7)]),
    "types first": (["X-B", "X-I", "O", "X-I", "X-B"], "X", [(0, 2), (3, 4), (4, 5)]),
    "BIOES": (["B-X", "E-X", "S-X", "O", "I-X", "E-X"], "X", [(0, 2), (2, 3), (4, 6)]),
    "BILOU": (["B-X", "L-X", "U-X", "O", "I-X", "L-X"], "X", [(0, 2), (2, 3), (4, 6)]),
    "BMES": (["B-X", "M-X", "E-X", "S-X", "O"], "X", [(0, 3), (3, 4)]),
}


@pytest.mark.parametrize("scheme", SPANS)
def test_spans_of_other_schemes(scheme: str) -> None:
    labels, entity_type, expected = SPANS[scheme]
    tokens = [Labelled(label, 0.5, k, k + 1) for k, label in enumerate(labels)]
    spans = labelled_spans(tokens, "abcdefg", sorted(set(labels)))
    assert [(span["start"], span["end"]) for span in spans] == expected
    assert {span["label"] for span in spans} == {entity_type}


def test_spans_on_the_command_line(small: Small) -> None:
    model, _ = small("BertForTokenClassification", num_labels=len(LABELS), hub=NAMES)
    arguments = ["classify", str(model.checkpoint.path), TEXTS[0], "--aggregate", "first"]
    printed = CliRunner().invoke(command, arguments).output
    assert json.loads(printed) == model.classify(TEXTS[:1], aggregate="first")[0]


def test_texts_have_no_tokens_to_aggregate(small: Small) -> None:
    model, _ = small("BertForSequenceClassification", num_labels=3)
    with pytest.raises(UsageError, match="which has no option --aggregate"):
        model.classify(["a"], aggregate="simple")


def test_an_unknown_aggregation_is_refused(small: Small) -> None:
    model, _ = small("BertForTokenClassification", num_labels=3)
    with pytest.raises(UsageError, match="by 'mean'; choose none, simple, first, average, max"):
        model.classify(["a"], aggregate="mean")  # type: ignore[arg-type]


def test_a_column_called_as_a_result_is_left_out(small: Small, tmp_path: Path) -> None:
    """Of any task of the verb: which one runs is known by the head, after the table is opened."""
    model, _ = small("BertForTokenClassification", num_labels=3)
    (tmp_path / "t.csv").write_text("text,tokens,id\na b,9,7\n")
    arguments = [str(model.checkpoint.path), "--input", str(tmp_path / "t.csv")]
    done = CliRunner().invoke(command, ["classify", "--backend", "cpu", *arguments])
    assert done.exit_code == 0, done.exception
    result = json.loads(done.stdout)
    assert result["id"] == "7" and result["tokens"][0]["token"] == "a"
