"""The command ``zoo probe``: tables, JSON, and errors of one line."""

import json
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests import checkpoints, warm
from tests.checkpoints import Make
from zoo.errors import UsageError

hub_checkpoint = checkpoints.hub_checkpoint
WORDS = ["a", "c", "e", "d", "b", "e", "g", "a", "i", "f"]


@pytest.fixture
def scene(hub_checkpoint: Make, tmp_path: Path) -> Path:
    """Write a model, and words that are vowels or consonants."""
    zoo.convert(hub_checkpoint("BertForMaskedLM"), output=tmp_path / "model")
    for name, count in (("train", 30), ("eval", 8)):
        sentences = []
        for number in range(count):
            words = WORDS[number % 7 :] + WORDS[: number % 4]
            lines = [f"{word}\t{'vowel' if word in 'aei' else 'consonant'}" for word in words]
            sentences.append("\n".join(lines) + "\n")
        (tmp_path / f"{name}.conll").write_text("\n".join(sentences))
    return tmp_path


def probe(scene: Path, *options: object, task: str = "token-classification") -> Any:
    data = ["--train", "train.conll", "--eval", "eval.conll"]
    return warm.zoo("probe", "model", "--task", task, *data, *options, cwd=scene)


def test_a_table_by_layer(scene: Path) -> None:
    done = probe(scene, "--seeds", 2, "--learning-rate", 0.05, "--epochs", 12)
    assert done.returncode == 0, done.stderr
    facts, counts, blank, name, header, *rows = done.stdout.splitlines()
    assert facts == (
        "token-classification, linear probes, first pooling, mean ± standard deviation of 2 seeds"
    )
    assert counts.startswith("2 labels; ") and blank == "" and name == "model"
    assert header.split() == ["layer", "accuracy", "F1", "macro", "loss", "(bits)"]
    names = ["embeddings", "layer 1", "layer 2", "learned mix"]
    assert [row.partition("  ")[0].strip() for row in rows] == names
    assert "1.0000 ± 0.0000" in rows[0]  # The embeddings have the words themselves.


def test_a_picture_and_a_page_are_written_and_kept(scene: Path) -> None:
    options = ("--epochs", 1, "--layers", "0", "-o", "layers.svg")
    done = probe(scene, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\ncurves: layers.svg\n")
    picture = (scene / "layers.svg").read_text()
    assert "accuracy" in picture
    done = probe(scene, *options)
    assert done.returncode == 2 and "layers.svg exists; give --force" in done.stderr
    assert (scene / "layers.svg").read_text() == picture
    done = probe(scene, *options[:-1], "layers.pdf")
    assert done.returncode == 2 and "end the name in .html, .svg or .png" in done.stderr


def test_json_is_what_python_returns(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = probe(scene, "--epochs", 2, "--compare", "model", "--layers", "-1,0", "--json")
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(scene)
    result = zoo.probe(
        "model",
        task="token-classification",
        train="train.conll",
        eval=["eval.conll"],
        epochs=2,
        compare=["model"],
        layers=[0, 2],
    )
    value = json.loads(done.stdout)
    assert value == json.loads(json.dumps(result.to_json()))
    first, second = value["models"]
    assert first == second
    assert [layer["layer"] for layer in first["layers"]] == [0, 2, None]
    assert len(first["layers"][-1]["shares"]) == 2
    assert first["forward_passes"] > 0


def test_selectivity_and_description_length(scene: Path) -> None:
    options = ("--control", "--mdl", "--epochs", 3, "--seeds", 2)
    done = probe(scene, *options, "--layers", "1", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["control"] == "a word has the random label of its type"
    (layer,) = value["models"][0]["layers"]
    for seed in range(2):
        accuracy = layer["accuracy"]["seeds"][seed]
        control_accuracy = layer["control_accuracy"]["seeds"][seed]
        assert layer["selectivity"]["seeds"][seed] == accuracy - control_accuracy
        # Two classes have a uniform code of a bit for each label.
        bits = layer["codelength"]["seeds"][seed]
        labels = value["examples"]["train"]
        assert layer["compression"]["seeds"][seed] == pytest.approx(labels / bits)
        assert layer["control_codelength"]["seeds"][seed] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--eval", "new.conll"], "new.conll:2: the label 'digit' is not in the training data"),
        (["--layers", "9"], "has no layer 9; its layers are 0 (the embeddings) to 2"),
        (["--layers", "one"], "--layers one is not a list of numbers"),
        (["--pair", "other"], "token-classification reads single texts; leave --pair out"),
        (["--max-seq-len", "41"], "texts cannot be cut at 41 tokens"),
        (["--hidden-size", "8"], "linear probes have no hidden layer; leave --hidden-size out"),
        (["--validation-fraction", "1"], "split, to hold some out; give others, or --validation-f"),
    ],
)
def test_errors_are_one_line(scene: Path, options: list[str], message: str) -> None:
    (scene / "new.conll").write_text("a\tvowel\nb\tdigit\n")
    done = probe(scene, *options)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_all_models_are_checked_before_the_first_one_runs(
    scene: Path, hub_checkpoint: Make
) -> None:
    deeper = hub_checkpoint("BertForMaskedLM", name="deeper-source", num_hidden_layers=3)
    zoo.convert(deeper, output=scene / "deeper")
    # A model that runs warns of words behind the cut end of their text.
    (scene / "long.conll").write_text("\n".join(["a\tvowel", "b\tconsonant"] * 30) + "\n")
    data = ["--task", "token-classification", "--train", "train.conll", "--eval", "long.conll"]
    options = ["--epochs", 1, "--layers", 3]
    done = warm.zoo("probe", "deeper", *data, *options, cwd=scene)
    assert done.returncode == 0 and "warning: deeper: 22 examples" in done.stderr
    done = warm.zoo("probe", "deeper", *data, *options, "--compare", "model", cwd=scene)
    assert done.returncode == 2
    assert done.stderr == (
        "error: model has no layer 3; its layers are 0 (the embeddings) to 2, or -1 (the last) to "
        "-3\n"
    )


def test_rows_with_unknown_labels_are_left_out_on_demand(scene: Path) -> None:
    (scene / "new.conll").write_text("a\tvowel\nb\tdigit\n")
    done = probe(scene, "--eval", "new.conll", "--skip-invalid", "--epochs", 1)
    assert done.returncode == 0
    assert "rows that cannot be used are left out: 1" in done.stderr


def test_one_label_is_an_error(scene: Path) -> None:
    (scene / "same.conll").write_text("a\tvowel\n\ne\tvowel\n")
    with pytest.raises(UsageError, match="all samples of the training data have the label 'vowel'"):
        zoo.probe(
            scene / "model",
            task="token-classification",
            train=scene / "same.conll",
            eval=scene / "eval.conll",
        )
    with pytest.raises(UsageError, match="no probing task"):
        zoo.probe(scene / "model", task="nothing", train="x", eval="y")
