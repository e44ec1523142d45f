"""The task zero-shot, against transformers' pipeline."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner

from tests.checkpoints import Make, byte_level_roberta, hub_checkpoint
from tests.inference.conftest import Small, converted
from tests.tasks.zero_shot.making import NLI, Names, labelled
from zoo.api import Model
from zoo.checkpoint import Checkpoint
from zoo.cli.inference.run import command
from zoo.errors import UsageError
from zoo.inference import Session, load_session

__all__ = ["hub_checkpoint"]
TEXTS = ["a b c", "d", "e f g h i j a b c"]
LABELS = ["a b", "c", "j i h ab"]


def pipeline(source: Path) -> Any:
    return transformers.pipeline(
        "zero-shot-classification",
        model=str(source),
        tokenizer=str(source),
        device="cpu",
        dtype=torch.float64,
    )


@pytest.fixture
def exact(small: Small) -> Small:
    """Return a function that makes a model that computes in float64; see ``small``."""

    def make(*args: Any, **changes: Any) -> Any:
        model, source = small(*args, **changes)
        return Model(model.checkpoint, double(model.checkpoint)), source

    return make


def double(checkpoint: Checkpoint) -> Session:
    return load_session(checkpoint, "cpu", dtype="float64")


def assert_same(results: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [result["text"] for result in results] == [other["sequence"] for other in expected]
    assert [result["labels"] for result in results] == [other["labels"] for other in expected]
    for result, other in zip(results, expected, strict=True):
        assert result["scores"] == pytest.approx(other["scores"], abs=1e-6)


@pytest.mark.by_default("False-names1", "True-names0")
@pytest.mark.parametrize(
    "names",
    [
        NLI,
        ("ENTAILMENT", "NEUTRAL", "CONTRADICTION"),
        ("CONTRADICTION", "ENTAILMENT", "NEUTRAL"),
        ("entailment", "not_entailment"),
    ],
)
@pytest.mark.parametrize("multi_label", [False, True])
def test_scores_are_the_pipelines(exact: Small, names: Names, multi_label: bool) -> None:
    model, source = exact("BertForSequenceClassification", **labelled(names))
    options: dict[str, Any] = {"hypothesis_template": "a {} b.", "multi_label": multi_label}
    expected = pipeline(source)(TEXTS, LABELS, **options)
    assert_same(model.zero_shot(TEXTS, LABELS, **options), expected)


def test_a_single_label_is_compared_with_contradiction(exact: Small) -> None:
    model, source = exact("BertForSequenceClassification", **labelled(NLI))
    assert_same(model.zero_shot(["a b"], "c"), [pipeline(source)("a b", "c")])


def test_byte_level_tokens_and_default_template(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = byte_level_roberta(hub_checkpoint, "RobertaForSequenceClassification", **labelled(NLI))
    checkpoint = converted(source, tmp_path / "model")
    model = Model(checkpoint, double(checkpoint))
    assert_same(model.zero_shot(TEXTS, "sports, a b"), pipeline(source)(TEXTS, "sports, a b"))


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_a_long_text_is_truncated_and_its_hypothesis_is_not(exact: Small) -> None:
    model, source = exact("BertForSequenceClassification", **labelled(NLI))
    oracle = pipeline(source)
    oracle.tokenizer.model_max_length = 40
    text, labels = "a b c d " * 20, ["e " * 20, "f"]
    (result,) = model.zero_shot([text], labels)
    assert_same([result], [oracle(text, labels)])
    assert result["truncated"] == 80 - (40 - 3 - 24)  # of "[UNK] [UNK] [UNK] e ... e [UNK]"
    with pytest.raises(UsageError, match="leave no room for a text"):
        model.zero_shot(["a"], ["e " * 60])


@pytest.mark.parametrize("multi_label", [False, True])
def test_logits_are_pooled_over_windows(exact: Small, multi_label: bool) -> None:
    """Windows and logits are transformers'; each window has the whole hypothesis."""
    model, source = exact("BertForSequenceClassification", **labelled(NLI))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    network = network.double().eval()
    text, labels = "a b c d e f g h i j " * 2, ["a b", "c", "j i h"]
    logits = []
    for label in labels:
        windows = tokenizer(
            text,
            f"a {label} b",
            truncation="only_first",
            max_length=14,
            stride=2,
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        windows.pop("overflow_to_sample_mapping")
        with torch.inference_mode():
            logits.append(network(**windows).logits)
    assert min(map(len, logits)) > 2
    expected = {"mean": torch.stack([rows.mean(0) for rows in logits])}
    best = []
    for rows in logits:
        margins = rows[:, 2] - rows[:, 0] if multi_label else rows[:, 2]
        best.append(rows[margins.argmax()])
    expected["max"] = torch.stack(best)
    expected["first"] = torch.stack([rows[0] for rows in logits])
    options: dict[str, Any] = {"hypothesis_template": "a {} b", "multi_label": multi_label}
    options |= {"max_seq_len": 14, "doc_stride": 2}
    for pooling, values in expected.items():
        if multi_label:
            scores = values[:, [0, 2]].softmax(-1)[:, 1]
        else:
            scores = values[:, 2].softmax(0)
        pooled: dict[str, Any] = {**options, "window_pooling": pooling}
        (result,) = model.zero_shot([text], labels, **pooled)
        found = dict(zip(result["labels"], result["scores"], strict=True))
        assert found == pytest.approx(dict(zip(labels, scores.tolist(), strict=True)), abs=1e-6)
        assert ("truncated" in result) == (pooling == "first")
    with pytest.raises(UsageError, match="the text in each window has 15 tokens"):
        model.zero_shot([text], ["e " * 10], **options)


def test_contradiction_is_found_by_its_name(exact: Small) -> None:
    """The pipeline takes the first label for contradiction, here the neutral one."""
    names = ("neutral", "contradiction", "entailment")
    model, _ = exact("BertForSequenceClassification", **labelled(names))
    (result,) = model.zero_shot(["a b"], ["c"])
    classes = model.classify([("a b", "This example is c.")])[0]["scores"]
    ratio = classes["entailment"] / (classes["entailment"] + classes["contradiction"])
    assert result["scores"] == [pytest.approx(ratio, abs=1e-6)]


def test_a_model_without_entailment_is_refused(exact: Small) -> None:
    model, _ = exact("BertForSequenceClassification", **labelled(("good", "bad")))
    with pytest.raises(UsageError, match="labels good, bad, and none of them is entailment"):
        model.zero_shot(["a"], ["b", "c"])


def test_a_language_model_is_refused(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    with pytest.raises(UsageError, match="head masked-lm, and zero-shot needs a model of natural"):
        model.zero_shot(["a"], ["b", "c"])


@pytest.mark.parametrize(
    ("labels", "template", "message"),
    [
        ([], "a {}", "there is no label to choose; name each with --label"),
        (["a", ""], "a {}", "a label is empty"),
        (["a", "b", "a"], "a {}", "the label a is given twice"),
        (["a"], "This is it.", "the template 'This is it.' has no place for the label"),
    ],
)
def test_labels_and_templates_are_checked(
    exact: Small, labels: list[str], template: str, message: str
) -> None:
    model, _ = exact("BertForSequenceClassification", **labelled(NLI))
    with pytest.raises(UsageError, match=message):
        model.zero_shot(["a"], labels, hypothesis_template=template)


def test_the_command_labels_a_table(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForSequenceClassification", **labelled(NLI))
    table, target = tmp_path / "t.csv", tmp_path / "out.jsonl"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "title"], [1, TEXTS[0]], [2, TEXTS[1]]])
    options = ["--label", "a b", "--label", "c", "--template", "d {}"]
    options += ["--backend", "cpu", "--dtype", "float64"]
    inputs = ["--input", str(table), "--text", "title", "--output", str(target)]
    done = CliRunner().invoke(command, ["zero-shot", str(source), *options, *inputs])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    expected = pipeline(source)(TEXTS[:2], ["a b", "c"], hypothesis_template="d {}")
    assert_same([{**row, "text": row["title"]} for row in rows], expected)
    assert [row["id"] for row in rows] == ["1", "2"]
