"""Evaluation of prompts: accuracies by hand, and their variation over the parts of prompts."""

import csv
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.checkpoints import Make, hub_checkpoint
from tests.inference.conftest import converted
from tests.tasks.prompt.making import Masked
from zoo.api import Model
from zoo.cli.inference.eval import command
from zoo.errors import UsageError
from zoo.inference import load_session
from zoo.metrics.variation import bootstrap_rows, factor_variation
from zoo.tasks.prompt.evaluate import PromptEvaluation

__all__ = ["hub_checkpoint"]
TEMPLATES = ("{text} b {label}", "c {label} {text}")
WORDS = ("x=a,y=j", "x=j,y=a")


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


@pytest.fixture
def model(hub_checkpoint: Make, tmp_path: Path) -> Model:
    checkpoint = converted(hub_checkpoint("BertForMaskedLM"), tmp_path / "model")
    return Model(checkpoint, load_session(checkpoint, "cpu"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([*"abcdefghij"], 4)) for _ in range(30)]
    return write(tmp_path / "test.csv", [(t, "xxy"[k % 3]) for k, t in enumerate(texts)])


def accuracy(model: Model, data: Path, **options: Any) -> float:
    with data.open() as file:
        rows = list(csv.DictReader(file))
    results = model.prompt([row["text"] for row in rows], **options)
    right = [r["label"] == row["label"] for r, row in zip(results, rows, strict=True)]
    return float(np.mean(right))


def test_templates_and_words_are_crossed(model: Model, data: Path) -> None:
    evaluation = PromptEvaluation(
        model.checkpoint, model.session, template=TEMPLATES, label_words=WORDS
    )
    result = evaluation.evaluate([data])
    expected = {
        (t, w): accuracy(model, data, template=t, label_words=w)
        for t, w in product(TEMPLATES, WORDS)
    }
    values = list(expected.values())
    assert len(set(values)) > 1, "the settings differ"
    assert result.metrics["accuracy"] == pytest.approx(np.mean(values))
    assert (result.metrics["lowest"], result.metrics["highest"]) == (min(values), max(values))
    found = [entry["accuracy"] for entry in result.details["prompts"]]
    assert found == pytest.approx(values)
    variation = result.details["variation"]
    assert set(variation) == {"template", "label words"}
    of_templates = [np.mean([expected[t, w] for w in WORDS]) for t in TEMPLATES]
    assert variation["template"]["deviation"] == pytest.approx(np.std(of_templates, ddof=1))
    assert variation["template"]["lowest"] == pytest.approx(min(of_templates))
    low, high = result.details["intervals"]["accuracy"]
    assert low <= result.metrics["accuracy"] <= high


def test_templates_of_a_file_have_words_of_their_own(
    model: Model, data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text(
        "plain: {template: '{text} b {label}', label_words: {x: a, y: j}}\n"
        "swapped:\n  template: 'c {label} {text}'\n  label_words: {x: j, y: a}\n"
    )
    evaluation = PromptEvaluation(model.checkpoint, model.session, templates=str(file))
    result = evaluation.evaluate([data])
    rows = result.details["prompts"]
    assert [row["template"] for row in rows] == ["plain", "swapped"]
    expected = [
        accuracy(model, data, template=TEMPLATES[0], label_words=WORDS[0]),
        accuracy(model, data, template=TEMPLATES[1], label_words=WORDS[1]),
    ]
    assert [row["accuracy"] for row in rows] == pytest.approx(expected)
    assert expected[0] != expected[1]
    # Without words in the file, the choices of words are crossed with its templates.
    file.write_text(json.dumps({"plain": TEMPLATES[0], "other": {"template": TEMPLATES[1]}}))
    evaluation = PromptEvaluation(
        model.checkpoint, model.session, templates=str(file), label_words=WORDS
    )
    rows = evaluation.evaluate([data]).details["prompts"]
    assert [row["template"] for row in rows] == ["plain", "plain", "other", "other"]
    assert rows[0]["accuracy"] == pytest.approx(expected[0])


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("{}", {}, "does not map names to templates"),
        ("- '{text} {label}'", {}, "does not map names to templates"),
        ("a: '{label}'", {}, r"templates.yaml: a: the template '{label}' has no slot {text}"),
        ("a: {text: b}", {}, "templates.yaml: a: Object"),
        (
            "a: {template: '{text} {label}', label_words: {x: yes, y: no}}",
            {},
            "a: Expected `str`, got `bool`.*; quote words such as yes and no",
        ),
        (
            "a: {template: '{text} {label}', label_words: {x: a}}",
            {},
            "a: 'x' is the only label with a word",
        ),
        (
            "a: '{text}'\nb: {template: '{text} {label}', label_words: {x: a, y: b}}",
            {},
            "a has no label_words, and b has some",
        ),
        (
            "b: {template: '{text} {label}', label_words: {x: a, y: b}}",
            {"label_words": WORDS[0]},
            "has label words, and --label-words too",
        ),
        ("a: '{text} {label}'", {"template": TEMPLATES}, "--template and --templates exclude"),
    ],
)
def test_wrong_files_of_templates_are_refused(
    model: Model, tmp_path: Path, content: str, options: dict[str, Any], message: str
) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        PromptEvaluation(model.checkpoint, model.session, templates=str(file), **options)


def test_examples_vary_by_seed_and_order(model: Model, data: Path, tmp_path: Path) -> None:
    rows = [("a b", "x"), ("c", "y"), ("d e", "x"), ("f", "y"), ("g h", "x")]
    train = write(tmp_path / "train.csv", rows)
    evaluation = PromptEvaluation(
        model.checkpoint,
        model.session,
        template=TEMPLATES[0],
        label_words=WORDS[0],
        shots=3,
        shots_from=str(train),
        seeds=2,
        orders=3,
        separator=" . ",
    )
    details = evaluation.evaluate([data]).details
    variation = details["variation"]
    # the orders of a seed are other ones than those of the next
    found = np.array([entry["accuracy"] for entry in details["prompts"]]).reshape(2, 3)
    of_orders = found.std(1, ddof=1).mean()
    assert variation["order"]["deviation"] == pytest.approx(of_orders)
    assert variation["order"]["highest"] == pytest.approx(found.max(1).mean())
    assert variation["seed"]["deviation"] == pytest.approx(found.mean(1).std(ddof=1))
    assert {name: values["levels"] for name, values in variation.items()} == {
        "seed": 2,
        "order": 3,
    }
    for seed, orders in enumerate(evaluation.demonstrations.orders):
        assert len(set(orders)) == 3, "orders differ"
        words = {"x": "a", "y": "j"}
        for order, places in enumerate(orders):
            shots = evaluation.demonstrations.examples(words, 0, seed, order)
            assert shots == [evaluation.demonstrations.selections[seed][place] for place in places]


@pytest.mark.long
def test_all_four_factors_by_hand(hub_checkpoint: Make, tmp_path: Path) -> None:
    """With scores of transformers, and with draws of the texts that are made here."""
    folder = hub_checkpoint("BertForMaskedLM")
    checkpoint = converted(folder, tmp_path / "model")
    rng, letters = np.random.default_rng(0), [*"abcdefghij"]
    texts = [" ".join(rng.choice(letters, 3)) for _ in range(10)]
    labels = ["xxy"[k % 3] for k in range(10)]
    table = write(tmp_path / "test.csv", list(zip(texts, labels, strict=True)))
    train = write(tmp_path / "train.csv", [(t, "xy"[k % 2]) for k, t in enumerate("abcdef")])
    evaluation = PromptEvaluation(
        checkpoint,
        load_session(checkpoint, "cpu"),
        template=TEMPLATES,
        label_words=WORDS,
        shots=2,
        shots_from=str(train),
        seeds=2,
        orders=2,
        separator=" h ",
    )
    result, masked = evaluation.evaluate([table]), Masked(folder)
    words = [dict(pair.split("=") for pair in w.split(",")) for w in WORDS]
    correct = []
    for template, of_label, seed, order in product(TEMPLATES, words, range(2), range(2)):
        shots = evaluation.demonstrations.examples(of_label, 0, seed, order)
        before = "".join(
            template.format(text=shot.text, label=of_label[shot.label]) + " h " for shot in shots
        )
        for text, label in zip(texts, labels, strict=True):
            start, _, end = template.partition("{label}")
            parts = [part.format(text=text) for part in (start, end)]
            scores = {
                name: masked.score(before + parts[0], word, parts[1])
                for name, word in of_label.items()
            }
            correct.append(max(scores, key=scores.__getitem__) == label)
    right = np.array(correct).reshape(2, 2, 2, 2, 10)  # factors, texts
    accuracy, details = right.mean(-1), result.details
    assert result.metrics["accuracy"] == pytest.approx(accuracy.mean())
    found = [entry["accuracy"] for entry in details["prompts"]]
    assert found == pytest.approx(accuracy.flatten().tolist())
    deviations: dict[str, Callable[[Any], float]] = {
        "template": lambda a: a.mean((1, 2, 3)).std(ddof=1),
        "label words": lambda a: a.mean((0, 2, 3)).std(ddof=1),
        "seed": lambda a: a.mean((0, 1, 3)).std(ddof=1),
        "order": lambda a: a.mean((0, 1)).std(1, ddof=1).mean(),
    }
    draws = [right[..., rng.integers(10, size=10)].mean(-1) for _ in range(2000)]
    for name, deviation in deviations.items():
        varied = details["variation"][name]
        assert varied["deviation"] == pytest.approx(deviation(accuracy))
        ends = np.percentile([deviation(draw) for draw in draws], [2.5, 97.5])
        assert [varied["deviation_low"], varied["deviation_high"]] == pytest.approx(ends, abs=0.05)
    ends = np.percentile([draw.mean() for draw in draws], [2.5, 97.5])
    assert details["intervals"]["accuracy"] == pytest.approx(ends, abs=0.05)


def test_the_deviation_is_that_of_the_means_of_levels() -> None:
    rng = np.random.default_rng(1)
    correct = rng.random((6, 400)) < np.array([0.5, 0.5, 0.6, 0.6, 0.9, 0.9])[:, None]
    accuracy, drawn = correct.mean(1), bootstrap_rows(correct, 0)
    strong = factor_variation(accuracy, drawn, [0, 0, 1, 1, 2, 2])
    weak = factor_variation(accuracy, drawn, [0, 1, 0, 1, 0, 1])
    means = accuracy.reshape(3, 2).mean(1)
    assert strong["deviation"] == pytest.approx(np.std(means, ddof=1))
    assert strong["deviation_low"] < strong["deviation"] < strong["deviation_high"]
    assert weak["deviation"] < 0.05 < strong["deviation_low"]
    np.testing.assert_allclose(drawn.mean(0), accuracy, atol=0.01)


def test_the_command_prints_and_records(hub_checkpoint: Make, data: Path, tmp_path: Path) -> None:
    checkpoint = converted(hub_checkpoint("BertForMaskedLM"), tmp_path / "model")
    options = ["--task", "prompt", "--eval", str(data), "--template", TEMPLATES[0]]
    options += ["--template", TEMPLATES[1], "--label-words", WORDS[0], "--no-record"]
    predictions = tmp_path / "predicted.jsonl"
    done = CliRunner().invoke(
        command, [str(checkpoint.path), *options, "--predictions", str(predictions)]
    )
    assert done.exit_code == 0, done.output
    assert "variation" in done.output and "template" in done.output
    assert len(predictions.read_text().splitlines()) == 30
    assert set(json.loads(predictions.read_text().splitlines()[0])) >= {"label", "prediction"}


@pytest.mark.long
def test_many_prompts_are_listed_by_accuracy(
    hub_checkpoint: Make, data: Path, tmp_path: Path
) -> None:
    checkpoint = converted(hub_checkpoint("BertForMaskedLM"), tmp_path / "model")
    templates = [f"{{text}} {letter} {{label}}" for letter in "abcdefghijk"]
    options = ["--task", "prompt", "--eval", str(data), "--no-record"]
    options += [part for template in templates for part in ("--template", template)]
    options += [part for words in WORDS for part in ("--label-words", words)]
    report = tmp_path / "report.html"
    done = CliRunner().invoke(command, [str(checkpoint.path), *options, "--report", str(report)])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert f"template 11  {templates[10]}" in lines
    start = next(k for k, line in enumerate(lines) if line.startswith("template  label words"))
    rows = [line.split() for line in lines[start + 1 :]]
    found = [float(row[2]) for row in rows]
    assert len(rows) == 20 < len(templates) * len(WORDS) and found == sorted(found, reverse=True)
    assert max(map(len, lines)) <= 80
    asked = CliRunner().invoke(command, [str(checkpoint.path), *options, "--json"])
    prompts = json.loads(asked.stdout)["prompts"]
    best = max(prompts, key=lambda prompt: prompt["accuracy"])
    assert templates[int(rows[0][0]) - 1] == best["template"]
    assert found[0] == pytest.approx(best["accuracy"], abs=1e-4)
    assert report.read_text().count(templates[3]) >= len(WORDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "there is no template"),
        ({"template": "no slot " * 40}, "has no slot {text}; write it as in"),
        ({"template": TEMPLATES[0], "seeds": 2}, "--seeds and --orders are for examples"),
        ({"template": TEMPLATES[0], "shots": 2}, "--shots and --shots-from belong together"),
    ],
)
def test_wrong_options_are_refused(model: Model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PromptEvaluation(model.checkpoint, model.session, **options)


def test_labels_without_words_are_refused(model: Model, data: Path) -> None:
    evaluation = PromptEvaluation(
        model.checkpoint, model.session, template=TEMPLATES, label_words=["x=a,z=b"]
    )
    with pytest.raises(UsageError, match="has the label 'y', which has no word"):
        evaluation.evaluate([data])
