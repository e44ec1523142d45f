"""Experiments with examples: orders and labels, against prompts that are written by hand."""

import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.prompt.making import Causal
from zoo.checkpoint import load_checkpoint
from zoo.cli.inference.eval import command
from zoo.errors import UsageError
from zoo.inference import load_session
from zoo.inference.processing.records import TextExample
from zoo.metrics.variation import bootstrap_rows, condition_means
from zoo.tasks.prompt.evaluate import PromptEvaluation

__all__ = ["source"]
TEMPLATE = "{text}: {label}"
WORDS = {"x": "cat", "y": "dog"}
EXAMPLES = [("a mat", "x"), ("the cafe", "y"), ("on", "x"), ("ran", "y")]
SAMPLES = [("cat sat", "x"), ("to the", "y"), ("mat", "x"), ("a dog", "y"), ("sat on", "y")]


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


@pytest.fixture
def folder(source: MakeSource, tmp_path: Path) -> Path:
    write(tmp_path / "train.csv", EXAMPLES)
    write(tmp_path / "test.csv", SAMPLES)
    source()
    return tmp_path


def evaluation(folder: Path, **options: Any) -> PromptEvaluation:
    checkpoint = load_checkpoint(next(folder.glob("*/zoo.json")).parent)
    options.setdefault("label_words", "x=cat,y=dog")
    return PromptEvaluation(
        checkpoint,
        load_session(checkpoint, "cpu", dtype="float64"),
        template=TEMPLATE,
        shots_from=str(folder / "train.csv"),
        separator="\n",
        **options,
    )


def test_labels_without_words_are_those_of_data_and_examples(folder: Path) -> None:
    varied = evaluation(folder, label_words=(), shots=4)
    assert varied.factors(["x"])[1].levels == ("x=x,y=y",), "no sample has the label y"
    write(folder / "train.csv", EXAMPLES[::2])
    with pytest.raises(UsageError, match="all samples have the label 'x'"):
        evaluation(folder, label_words=(), shots=2).factors(["x"])
    wrong = {"wrong_labels": [1], "scoring": "generate"}
    generated = evaluation(folder, label_words=(), shots=2, **wrong)
    generated.factors(["x"])
    with pytest.raises(UsageError, match="'x' is the only label"):
        generated.task_of([0, 0, 0, 0, 0])


def test_every_order_and_label_is_the_prompt_written_by_hand(folder: Path) -> None:
    conditions = evaluation(
        folder, shots=3, orders="all", shot_labels=["gold", "permuted", "none"], wrong_labels=[1]
    )
    result = conditions.evaluate([folder / "test.csv"])
    rows = {}
    for row in result.details["prompts"]:
        rows[row["shot labels"], row["order"]] = row["accuracy"]
    reference = Causal(folder / "hub")
    gold = {shot.text: shot.label for shot in conditions.demonstrations.selections[0]}
    assert gold == {text: label for text, label in EXAMPLES if text in gold}
    texts = list(gold)
    permuted_shots = conditions.demonstrations.labels[1].relabel(
        conditions.demonstrations.selections[0], WORDS, 0
    )
    labels = {
        "gold": gold,
        "permuted": {shot.text: shot.label for shot in permuted_shots},
        "none": {},
        "1 wrong": {text: {"x": "y", "y": "x"}[label] for text, label in gold.items()},
    }
    for (name, label_of), (order, places) in itertools.product(
        labels.items(), enumerate(itertools.permutations(range(3)))
    ):
        before = ""
        if not label_of and order:
            assert rows[name, order] == rows[name, 0], "there are no examples to order"
            continue
        if label_of:
            before = "".join(
                f"{texts[place]}: {WORDS[label_of[texts[place]]]}\n" for place in places
            )
        level = list(labels).index(name)
        task = conditions.task_of([0, 0, level, 0, order])
        records = [TextExample(text, location=text) for text, _ in SAMPLES]
        right = 0
        for (text, label), (_, added) in zip(SAMPLES, task.stream(iter(records)), strict=True):
            context = f"{before}{text}: "
            expected = {name: reference.score(context, word) for name, word in WORDS.items()}
            assert added["log_probs"] == pytest.approx(expected, abs=1e-6)
            right += max(expected, key=expected.__getitem__) == label
        assert rows[name, order] == right / len(SAMPLES)


def test_calibration_reads_the_examples_of_each_condition(folder: Path) -> None:
    conditions = evaluation(folder, shots=2, orders=2, shot_labels="random", calibrate=True)
    conditions.factors(["x", "y"])
    reference = Causal(folder / "hub")
    shots = conditions.demonstrations.examples(WORDS, 0, 0, 1)
    before = "".join(f"{shot.text}: {WORDS[shot.label]}\n" for shot in shots)
    ((_, added),) = conditions.task_of([0, 0, 0, 0, 1]).stream(
        iter([TextExample("cat sat", location="here")])
    )
    weights = {}
    for name, word in WORDS.items():
        weight = math.exp(reference.score(f"{before}cat sat: ", word))
        weights[name] = weight / math.exp(reference.score(f"{before}N/A: ", word))
    # The sums of both words scale all labels by the same number.
    expected = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    assert added["scores"] == pytest.approx(expected, abs=1e-6)


def test_the_prompt_of_a_sample_does_not_depend_on_its_label(folder: Path) -> None:
    swapped = [(text, {"x": "y", "y": "x"}[label]) for text, label in SAMPLES]
    write(folder / "swapped.csv", swapped)
    for labels in ("gold", "random", "permuted"):
        predictions = []
        for name in ("test.csv", "swapped.csv"):
            rows: list[Any] = []
            conditions = evaluation(folder, shots=3, shot_labels=labels)
            conditions.evaluate([folder / name], on_prediction=rows.append)
            predictions.append([(row["prediction"], row["probability"]) for row in rows])
        assert predictions[0] == predictions[1]


def test_conditions_have_means_ranges_and_differences(folder: Path) -> None:
    conditions = evaluation(
        folder,
        shots=2,
        seeds=3,
        orders=2,
        shot_labels=["gold", "random", "none"],
        calibrate=True,
    )
    details = conditions.evaluate([folder / "test.csv"]).details
    assert [row["shot labels"] for row in details["conditions"]] == ["gold", "random", "none"]
    by_name: dict[str, list[float]] = {}
    for row in details["prompts"]:
        by_name.setdefault(row["shot labels"], []).append(row["accuracy"])
    assert len({row["accuracy"] for row in details["prompts"]}) > 2, "prompts differ"
    gold_mean = float(np.mean(by_name["gold"]))
    for row in details["conditions"]:
        values = by_name[row["shot labels"]]
        assert len(values) == 6
        assert row["accuracy"] == pytest.approx(np.mean(values))
        assert row["deviation"] == pytest.approx(np.std(values, ddof=1))
        assert (row["lowest"], row["highest"]) == (min(values), max(values))
        assert row["difference"] == pytest.approx(np.mean(values) - gold_mean)
        assert row["low"] <= row["accuracy"] <= row["high"]
    assert len(set(by_name["none"])) == 1
    # Orders and selections change nothing without examples, which are left out.
    with_examples = np.array([by_name["gold"], by_name["random"]]).reshape(2, 3, 2)
    order_deviation = with_examples.mean(0).std(1, ddof=1).mean()
    assert details["variation"]["order"]["deviation"] == pytest.approx(order_deviation)
    seed_deviation = with_examples.mean((0, 2)).std(ddof=1)
    assert details["variation"]["seed"]["deviation"] == pytest.approx(seed_deviation)


def test_the_interval_of_a_condition_is_that_of_draws_of_samples_and_selections() -> None:
    """Against a second bootstrap, which draws the samples and blocks themselves."""
    rng = np.random.default_rng(5)
    chances = rng.uniform(0.3, 0.9, (2, 4))  # conditions, selections
    correct = rng.random((2, 4, 3, 60)) < chances[..., None, None]
    flat = correct.reshape(24, 60)
    conditions = np.repeat([0, 1], 12).tolist()
    blocks = np.tile(np.repeat(np.arange(4), 3), 2).tolist()
    rows = condition_means(flat.mean(1), bootstrap_rows(flat, 0), conditions, blocks, 0)
    draws = []
    for _ in range(4000):
        samples = rng.integers(60, size=60)
        selections = rng.integers(4, size=4)
        draws.append(correct[:, selections][..., samples].mean((1, 2, 3)))
    drawn = np.array(draws)
    differences = drawn[:, 1] - drawn[:, 0]
    for number, row in enumerate(rows):
        ends = np.percentile(drawn[:, number], [2.5, 97.5])
        assert [row["low"], row["high"]] == pytest.approx(ends, abs=0.02)
        assert row["accuracy"] == pytest.approx(correct[number].mean())
    ends = np.percentile(differences, [2.5, 97.5])
    assert [rows[1]["difference_low"], rows[1]["difference_high"]] == pytest.approx(ends, abs=0.03)
    assert rows[0]["difference"] == rows[0]["difference_low"] == 0


def test_equal_prompts_are_computed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = evaluation(folder, shots=2, seeds=2, orders="all", shot_labels=["gold", "none"])
    computed = []
    task_of = conditions.task_of

    def counted(levels: Any) -> Any:
        computed.append(levels)
        return task_of(levels)

    monkeypatch.setattr(conditions, "task_of", counted)
    details = conditions.evaluate([folder / "test.csv"]).details
    assert len(details["prompts"]) == 8
    assert len(computed) == 4 + 1, "one prompt has no examples"


def test_examples_that_are_also_samples_are_named(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder / "test.csv", [*SAMPLES, EXAMPLES[2]])
    evaluation(folder, shots=4).evaluate([folder / "test.csv"])
    assert "1 text is both an example and a sample, such as" in caplog.text
    assert "test.csv:7: its label can be copied" in caplog.text
    write(folder / "test.csv", [*SAMPLES, EXAMPLES[2], EXAMPLES[0]])
    evaluation(folder, shots=4).evaluate([folder / "test.csv"])
    assert "2 texts are both examples and samples, such as" in caplog.text


def test_examples_with_unknown_labels_are_refused_even_if_labels_are_random(folder: Path) -> None:
    write(folder / "train.csv", [("a mat", "z"), ("on", "x")])
    conditions = evaluation(folder, shots=2, shot_labels="random")
    with pytest.raises(UsageError, match=r"train\.csv:2 has the label 'z', which has no"):
        conditions.evaluate([folder / "test.csv"])


def test_the_command_shows_conditions(folder: Path) -> None:
    model = next(folder.glob("*/zoo.json")).parent
    options = ["--task", "prompt", "--eval", str(folder / "test.csv"), "--template", TEMPLATE]
    options += ["--label-words", "x=cat,y=dog", "--shots-from", str(folder / "train.csv")]
    options += ["--no-record", "--shot-labels", "gold", "--shot-labels", "random"]
    varied = ["--shots", "2", "--orders", "all", "--seeds", "2", "--wrong-labels", "0.5"]
    page = folder / "report.html"
    varied += ["--report", str(page), "--force"]
    done = CliRunner().invoke(command, [str(model), *options, *varied])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("shot labels    mean"))
    names = [line.split("  ")[0] for line in lines[start + 1 : start + 4]]
    assert names == ["gold", "random", "0.5 wrong"]
    assert max(map(len, lines)) <= 80
    report = page.read_text()
    assert report.count("</circle>") == 3, "a point for each condition"
    for row in ("Accuracy by condition", ">0.5 wrong</text>", "bars: range"):
        assert row in report
    calibrated = ["--calibrate", "--content-free", "", "--separator", " . "]
    calibrated += ["--scoring", "normalized"]
    done = CliRunner().invoke(command, [str(model), *options, *varied, *calibrated, "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["conditions"]) == 3
    done = CliRunner().invoke(command, [str(model), *options, "--shots", "2", "--orders", "3"])
    assert "--orders 3 are more than the 2 orders of 2 examples" in str(done.exception)
    done = CliRunner().invoke(command, [str(model), *options, "--shots", "5"])
    assert "5 examples are more than the 4 rows of" in str(done.exception)
