"""Similarity of layers: next to the formulas on hidden states of transformers, and its warnings."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import load_file

import zoo
from tests import warm
from tests.checkpoints import hub_checkpoint
from tests.finetuning import conftest
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, labelled, settings, texts
from zoo.errors import UsageError
from zoo.probing.run_checkpoints import write_as_model
from zoo.probing.similarity import Unit
from zoo.training.state.progress import checkpoint_path

__all__ = ["hub_checkpoint"]
Floats = NDArray[np.float64]
pretrained = conftest.pretrained


def cka(x: Floats, y: Floats) -> float:
    """Return the linear CKA of features, by equation 3 of Kornblith et al. 2019."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    product = np.linalg.norm(y.T @ x) ** 2
    return float(product / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))


def reference_states(source: Path, lines: list[str], *, sentences: bool) -> list[Floats]:
    """Return the vectors of all layers of a model of transformers, one text at a time."""
    model = transformers.AutoModel.from_pretrained(source).eval().double()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    layers: list[list[Floats]] = []
    for line in lines:
        with torch.no_grad():
            states = model(**tokenizer(line, return_tensors="pt"), output_hidden_states=True)
        for number, state in enumerate(states.hidden_states):
            if number == len(layers):
                layers.append([])
            vectors = state[0].numpy()
            layers[number].append(vectors.mean(axis=0) if sentences else vectors[1:-1])
    return [np.vstack(rows) for rows in layers]


def test_layers_are_those_of_transformers(pretrained: Pretrained) -> None:
    _, source = pretrained("BertModel")
    lines = texts(60)
    units: tuple[Unit, ...] = ("tokens", "sentences")
    for unit in units:
        found = zoo.layer_similarity(source, texts=lines, unit=unit, device="cpu")
        states = reference_states(source, lines, sentences=unit == "sentences")
        assert found.vectors == len(states[0])
        expected = [[cka(one, other) for other in states] for one in states]
        np.testing.assert_allclose(found.matrices["cka"], expected, atol=1e-5)
        for matrix in found.matrices.values():
            np.testing.assert_allclose(np.diag(matrix), 1, atol=1e-6)
    # A single letter is a token: words have the vectors of the tokens.
    by_word = zoo.layer_similarity(source, texts=lines, unit="words", device="cpu")
    by_token = zoo.layer_similarity(source, texts=lines, device="cpu")
    assert by_token.unit == "tokens"
    np.testing.assert_allclose(by_word.matrices["cka"], by_token.matrices["cka"], atol=1e-6)
    few = zoo.layer_similarity(source, texts=lines[:9], unit="sentences", device="cpu")
    assert few.warnings[0].startswith("9 sentences are no more than the 32 dimensions of a layer")
    assert few.matrices["pwcca"][0, 1] == pytest.approx(1, abs=1e-6)
    equal = zoo.layer_similarity(source, texts=["a"] * 40, unit="words", device="cpu")
    assert equal.warnings[-1].startswith("a layer has equal vectors for all words")
    assert np.isnan(equal.matrices["cka"]).all()
    with pytest.raises(UsageError, match="there are no texts to compare layers on"):
        zoo.layer_similarity(source, texts=[" "])


@pytest.mark.long
def test_checkpoints_of_a_run_are_compared(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    changes = {"max_steps": 4, "eval_steps": 2, "save_total_limit": 9}
    run = finetune(tmp_path / "run", settings(model, labelled(tmp_path / "t.tsv"), **changes))
    step = checkpoint_path(run, 2)
    opened = write_as_model(step, _new(tmp_path / "model"))
    stored = load_file(step / "weights.safetensors")
    for name, tensor in load_file(opened.path / "model.safetensors").items():
        assert torch.equal(tensor, stored[name])
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(texts(30)) + "\n\n")
    picture = tmp_path / "layers.svg"
    last = checkpoint_path(run, 4)  # the final model has the weights of the best step
    done = warm.zoo("look", step, "--compare", last, "--input", lines, "--json", "-o", picture)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["unit"] == "tokens" and value["texts"] == 30
    assert 0.5 < value["cka"][-1][-1] < 1
    assert "Linear CKA" in picture.read_text()
    done = warm.zoo("look", model, "a b", "--input", lines)
    assert done.returncode == 2 and "both as arguments and by --input" in done.stderr
    shutil.rmtree(run / "model")
    with pytest.raises(UsageError, match="has no final model yet"):
        write_as_model(step, _new(tmp_path / "other"))


def _new(path: Path) -> Path:
    path.mkdir()
    return path
