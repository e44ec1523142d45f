"""Token classification with a CRF: losses, decoding, and where the transitions are kept."""

from pathlib import Path

import numpy as np
import pytest
import torch

import zoo
from tests.exporting.making import export_onnx
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    HERE,
    assert_resumes_exactly,
    finetune,
    settings,
    setup_of,
    training_losses,
)
from tests.tasks.token_classification.making import TASK, tagged
from tests.training.runs import records
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.data.readers.labelled import Columns
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.tasks import make_evaluation
from zoo.tasks.token_classification.data import read_words
from zoo.tasks.token_classification.train import CrfTagger

CRF = {"task": TASK, "task_args": {"crf": True}}


def alternating(path: Path, count: int = 40) -> Path:
    """Write sentences of one letter, whose labels alternate."""
    lines = [f"a\t{'XY'[word % 2]}" for _ in range(count) for word in range(4)]
    sentences = ["\n".join(lines[k : k + 4]) for k in range(0, len(lines), 4)]
    path.write_text("\n\n".join(sentences) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crf")


@pytest.fixture
def trained(pretrained: Pretrained, folder: Path) -> Path:
    """A run on ``t.conll``, evaluated on ``e.conll`` beside it; trained once."""
    run, held = folder / "run", folder / "e.conll"
    if run.exists():
        return run
    model, _ = pretrained()
    data = {"eval": [str(tagged(held, 12, seed=5))]}
    tree = settings(model, tagged(folder / "t.conll", 60), **CRF, data=data)
    steps = {"max_steps": 24, "eval_steps": 24, "save_steps": 24}
    return finetune(run, {**tree, **steps, "optimizer": {"learning_rate": 5e-3}})


def test_the_first_loss(pretrained: Pretrained, tmp_path: Path) -> None:
    """Over the words of a step, from the released model's logits and all labellings' scores."""
    labels = ["X", "Y"]
    names = {"id2label": dict(enumerate(labels)), "label2id": {n: k for k, n in enumerate(labels)}}
    model, _ = pretrained("BertForTokenClassification", **names)
    table = alternating(tmp_path / "t.conll")
    tree = settings(model, table, **CRF, max_steps=1, data={"eval": [str(table)]})
    run = finetune(tmp_path / "run", tree)
    setup = setup_of(run)
    module = setup.objective.model(setup.family, setup.model_config)
    setup.load_pretrained(module)
    assert isinstance(module, CrfTagger)
    loader, total, words = setup.train_dataloader(HERE), 0.0, 0
    for batch in loader.make_batches(0):
        logits = module.tagger(batch.tensors["input_ids"])["logits"].detach().double()
        for row, targets in zip(logits, batch.tensors["labels"], strict=True):
            emissions, path = row[targets >= 0], targets[targets >= 0]
            total += float(torch.nn.functional.cross_entropy(emissions, path, reduction="sum"))
            words += len(path)
    loader.close()
    assert training_losses(run) == [pytest.approx(total / words, abs=1e-5)], "transitions are 0"


def test_transitions_are_learned(pretrained: Pretrained, tmp_path: Path) -> None:
    """Labels that alternate are likelier one after the other than twice."""
    model, _ = pretrained()
    table = alternating(tmp_path / "t.conll")
    tree = settings(model, table, **CRF, data={"eval": [str(table)]})
    steps = {"max_steps": 20, "eval_steps": 20, "save_steps": 20}
    run = finetune(tmp_path / "run", {**tree, **steps, "optimizer": {"learning_rate": 2e-2}})
    transitions = np.array(load_checkpoint(run / "model").model.transitions)
    assert transitions.shape == (3, 3)
    assert transitions[0, 1] > transitions[0, 0] and transitions[1, 0] > transitions[1, 1]


def test_the_labels_are_the_most_probable_ones(trained: Path) -> None:
    """Those of the run's evaluation, of ``zoo run`` and of ``zoo eval``."""
    model = zoo.load(trained / "model", backend="cpu")
    transitions = np.array(model.checkpoint.model.transitions)
    assert np.abs(transitions).max() > 0.01
    held = trained.parent / "e.conll"
    samples = read_words([held], Columns())
    texts = [" ".join(sample.words) for sample in samples]
    results = model.classify(texts)
    hits = 0
    for sample, result in zip(samples, results, strict=True):
        assert [token["token"] for token in result["tokens"]] == list(sample.words)
        predicted = [token["label"] for token in result["tokens"]]
        hits += sum(a == b for a, b in zip(sample.labels, predicted, strict=True))
    accuracy = hits / sum(len(sample.words) for sample in samples)
    logged = records(trained, "validation")[-1]["metrics"]
    assert logged["accuracy"] == pytest.approx(accuracy)
    measured = make_evaluation(TASK, model.checkpoint, model.session).evaluate([held])
    assert measured.metrics["accuracy"] == pytest.approx(accuracy)
    assert measured.metrics["f1"] == pytest.approx(logged["f1"])


# tests/exporting has the graph of this head; the labels are found in its logits as in torch's.
@pytest.mark.long
def test_the_labels_of_a_graph_are_the_most_probable_ones(trained: Path, tmp_path: Path) -> None:
    model = zoo.load(trained / "model", backend="cpu")
    held = trained.parent / "e.conll"
    texts = [" ".join(sample.words) for sample in read_words([held], Columns())]
    results = model.classify(texts)
    export_onnx(model.checkpoint, tmp_path / "onnx")
    exported = zoo.load(tmp_path / "onnx", backend="onnx").classify(texts)
    for expected, answer in zip(results, exported, strict=True):
        assert [t["label"] for t in answer["tokens"]] == [t["label"] for t in expected["tokens"]]
        scores = [token["score"] for token in expected["tokens"]]
        assert [token["score"] for token in answer["tokens"]] == pytest.approx(scores, abs=1e-5)


def test_spans_and_scores_of_a_text(trained: Path) -> None:
    """``ab c`` is two words of three tokens, with the best of all labellings of two words."""
    model = zoo.load(trained / "model", backend="cpu")
    labels = model.checkpoint.config.labels
    (result,) = model.classify(["ab  c"])
    transitions = torch.tensor(model.checkpoint.model.transitions, dtype=torch.float64)
    ids = np.array([model.tokenizer.encode(["ab c"], max_tokens=None)[0].ids])
    logits = torch.from_numpy(model.session.run({"input_ids": ids})["logits"][0]).double()
    emissions, count = logits[[1, 3]], len(labels)
    scores = {
        (i, j): path_score_of(emissions, (i, j), transitions)
        for i in range(count)
        for j in range(count)
    }
    first, second = max(scores, key=lambda path: scores[path])
    names = [labels[first], labels[first], labels[second]]
    assert [token["label"] for token in result["tokens"]] == names
    total = np.logaddexp.reduce(list(scores.values()))
    share = sum(np.exp(s - total) for (_, j), s in scores.items() if j == second)
    assert result["tokens"][-1]["score"] == pytest.approx(float(share), abs=1e-6)
    (spans,) = model.classify(["ab  c"], aggregate="simple")
    words = [token for token in result["tokens"] if token["start"] != 1]
    assert {span["text"] for span in spans["entities"]} <= {"ab", "c", "ab  c"}
    assert bool(spans["entities"]) == any(word["label"] != "O" for word in words)


def path_score_of(
    emissions: torch.Tensor, path: tuple[int, int], transitions: torch.Tensor
) -> float:
    """Return the score of two labels, of any number of labels."""
    first, second = path
    edges = transitions[-1, first] + transitions[first, second] + transitions[second, -1]
    return float(edges + emissions[0, first] + emissions[1, second])


def test_a_conversion_keeps_the_transitions_and_the_hub_has_none(
    trained: Path, tmp_path: Path
) -> None:
    source = CheckpointDir(trained / "model", "model")
    convert(source, tmp_path / "copy")
    copied = load_checkpoint(tmp_path / "copy").model.transitions
    assert copied == load_checkpoint(trained / "model").model.transitions
    convert(source, tmp_path / "backbone", head="none")
    assert load_checkpoint(tmp_path / "backbone").model.transitions is None
    with pytest.raises(UsageError, match="labels words by a CRF, which no class of the Hub has"):
        convert(source, tmp_path / "hub", to="hub")
    assert not (tmp_path / "hub").exists()


def test_a_run_from_the_checkpoint_goes_on_with_its_transitions(
    trained: Path, tmp_path: Path
) -> None:
    tree = settings(trained / "model", tagged(tmp_path / "t.conll", 60), task=TASK)
    config = {**tree, "max_steps": 1, "eval_steps": 1, "save_steps": 1}
    frozen = {"optimizer": {"learning_rate": 1e-12}}
    run = finetune(tmp_path / "again", {**config, **frozen})
    before, after = (load_checkpoint(p / "model").model.transitions for p in (trained, run))
    np.testing.assert_allclose(np.array(after), np.array(before), atol=1e-9)


@pytest.mark.long
def test_resume(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    assert_resumes_exactly(tmp_path, settings(model, tagged(tmp_path / "t.conll"), **CRF), step=4)


def test_class_weights_are_refused(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    tree = settings(model, tagged(tmp_path / "t.conll"), **CRF, class_weights="balanced")
    with pytest.raises(UsageError, match="a CRF is not trained with class_weights"):
        finetune(tmp_path / "run", tree)
