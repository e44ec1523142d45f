"""What people do from beginning to end: a table of reviews, and a model of their own."""

import csv
import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tests import warm
from tests.finetuning.conftest import Pretrained, hub_checkpoint, pretrained
from tests.training.logging.making import Page
from tests.training.runs import records

__all__ = ["Pretrained", "hub_checkpoint", "pretrained"]


def run(folder: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    done = warm.zoo(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done


def reviews(folder: Path) -> Path:
    """Write a dirty table: a byte-order mark, empty texts, contradictions, ``yes`` and ``Yes``."""
    rng, rows = random.Random(0), list[tuple[str, str]]()
    for _ in range(40):
        text = " ".join(rng.choices("abcdefghij", k=rng.randint(2, 12)))
        rows.append((text, "yes" if text[0] <= "e" else "no"))
    other = {"yes": "no", "no": "yes"}
    rows += [("", "yes"), (rows[0][0], other[rows[0][1]]), rows[1], ("a b c", "Yes")]
    lines = [
        "id,the review,is good",
        *(f"{k},{text},{label}" for k, (text, label) in enumerate(rows)),
    ]
    path = folder / "my reviews" / "all of them.csv"
    path.parent.mkdir()
    path.write_text("\ufeff" + "\r\n".join(lines) + '\r\n99,"a, ""b"" c",yes\r\n', encoding="utf-8")
    return path


@pytest.mark.long  # each command has tests of its own
def test_from_a_dirty_table_to_a_classifier_its_mistakes_an_export_and_a_card(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    _, start = pretrained()
    table = reviews(tmp_path)
    columns = ("--text", "the review", "--label", "is good")
    task = ("--task", "text-classification")
    training = ("finetune", start, *task, "--train", table, *columns, "--device", "cpu")
    steps = ("--max-steps", "4", "--learning-rate", "1e-3")
    done = run(tmp_path, *training, *steps, "-o", "first run")
    for warning in (
        "1 samples to train on have an empty text",
        "have the text of another one and a different label",
        "the labels 'Yes', 'yes' differ in case only: write them alike",
    ):
        assert warning in done.stderr
    table.write_text(table.read_text(encoding="utf-8").replace("Yes", "yes"), encoding="utf-8")
    done = run(tmp_path, *training, *steps, "-o", "my run")
    assert "differ in case only" not in done.stderr
    page = Page(tmp_path / "my run" / "report.html")
    assert "Mistakes" in page.text

    files = ("--predictions", "what it says.csv", "--report", "what it says.html")
    evaluated = ("eval", "my run/model", *task, "--eval", table, *columns, "--backend", "cpu")
    value = json.loads(run(tmp_path, *evaluated, *files, "--json").stdout)
    with (tmp_path / "what it says.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["text"] == 'a, "b" c' and {row["label"] for row in rows} == {"no", "yes"}
    right = sum(row["label"] == row["prediction"] for row in rows)
    assert right / len(rows) == value["metrics"]["accuracy"]
    wrong = f"{len(rows) - right} of {len(rows)} predictions are wrong"
    assert [t for t in Page(tmp_path / "what it says.html").text if t.startswith(wrong)] != []

    quantized = ("--onnx", "--int8", "--eval", table, *columns, "--max-drop", "1")
    run(tmp_path, "export", "my run/model", *quantized, "-o", "my export")
    snippet = (tmp_path / "my export" / "README.md").read_text().split("```js\n")[1]
    assert snippet.splitlines()[2:5] == [
        'const model = await pipeline("text-classification", "organisation/name", '
        '{ dtype: "q8" });',
        'console.log(await model("A text."));',
        "```",
    ]
    (result,) = run(
        tmp_path, "run", "classify", "my export", "--dtype", "int8", "a b c"
    ).stdout.splitlines()
    assert json.loads(result)["label"] in ("no", "yes")

    run(tmp_path, "convert", "my run/model", "--to", "hub", "--licence", "mit", "-o", "my hub")
    card = ModelCard.load(tmp_path / "my hub" / "README.md")
    assert card.data.license == "mit" and card.data.pipeline_tag == "text-classification"
    values = {r.metric_type: r.metric_value for r in card.data.eval_results or []}
    assert values["accuracy"] == value["metrics"]["accuracy"]
    assert {r.dataset_name for r in card.data.eval_results or []} == {"all of them.csv"}
    assert str(tmp_path) not in card.content and "| learning_rate | 0.001 |" in card.text
    assert "licence: mit" in run(tmp_path, "push", "my hub", "me/reviews").stdout


@pytest.mark.long
def test_from_pretraining_to_a_comparison_and_a_continuation(tmp_path: Path) -> None:
    books = tmp_path / "my books"
    books.mkdir()
    rng = random.Random(0)
    words = ["the", "cat", "dog", "sat", "ran", "on", "under", "a", "mat", "tree", "old", "new"]
    for name in ("one.txt", "two.txt"):
        sentences = [f"{' '.join(rng.choices(words, k=9)).capitalize()}." for _ in range(240)]
        lines = [" ".join(sentences[k : k + 4]) for k in range(0, 240, 4)]
        (books / name).write_text("\n\n".join(lines))
    settings: tuple[Any, ...] = (
        *("--train", books, "--device", "cpu", "--size", "tiny", "--max-steps", "4"),
        *("--set", "seq_len=32", "--set", "global_batch_tokens=256", "--set", "eval_steps=2"),
        *("--set", "vocab_size=200", "--set", "keep_optimizer=true"),
    )
    rates = {"slow run": "1e-4", "fast run": "1e-3"}
    for name, rate in rates.items():
        run(tmp_path, "pretrain", "bert", *settings, "--learning-rate", rate, "-o", name)
    compared = run(tmp_path, "compare", *rates, "--figures", "my figures")
    last = {name: records(tmp_path / name, "validation")[-1] for name in rates}
    assert [f"{last[name]['loss']:.4g}" in compared.stdout for name in rates] == [True, True]
    assert "optimizer.learning_rate" in compared.stdout
    (figure,) = (tmp_path / "my figures").glob("*.svg")
    # two evaluations are points, and not a line
    assert "<polyline" not in figure.read_text() and figure.read_text().count("<circle") == 4

    more = ("--continue-from", "fast run", "--max-steps", "6", "--device", "cpu")
    run(tmp_path, "pretrain", *more, "-o", "longer run")
    page = Page(tmp_path / "longer run" / "report.html")
    assert "continues fast run" in page.text
    steps = [record["step"] for record in records(tmp_path / "longer run", "validation")]
    assert steps == [2, 4, 6]
    assert re.search(r"finished after 6 steps", " ".join(page.text))
