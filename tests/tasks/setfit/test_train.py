"""SetFit: pairs and loss by hand, the regression against scikit-learn, runs from end to end."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from sklearn.linear_model import LogisticRegression

from tests.families.every import every_family
from tests.finetuning.conftest import Pretrained
from tests.inference.conftest import Small, converted
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.errors import UsageError
from zoo.finetuning.logistic_regression import fit
from zoo.finetuning.runs import FineTuneRun
from zoo.inference import load_session
from zoo.plugins.registry import get_family
from zoo.tasks.setfit.pairs import contrastive_pairs, neighbouring_pairs
from zoo.training.distributed.context import DistContext

HERE = DistContext(0, 1, torch.device("cpu"))
WORDS = {"good": "a b c", "bad": "h i j"}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("c", [1.0, 20.0])
def test_the_regression_is_that_of_scikit_learn(classes: int, c: float) -> None:
    rng = np.random.default_rng(classes)
    labels = rng.integers(classes, size=60)
    vectors = rng.standard_normal((60, 7)) + np.eye(classes, 7)[labels]
    ours = fit(vectors, labels, classes, c)
    theirs = LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(vectors, labels)
    more = rng.standard_normal((20, 7))
    logits = torch.from_numpy(ours.logits(more))
    np.testing.assert_allclose(logits.softmax(-1), theirs.predict_proba(more), atol=1e-6)


def test_each_text_has_pairs_of_both_kinds_in_each_iteration() -> None:
    labels = np.array([0, 0, 1, 1, 1, 2])
    pairs = contrastive_pairs(labels, 5, seed=3)
    assert len(pairs.first) == 2 * 5 * len(labels)
    assert np.array_equal(pairs.similar == 1, labels[pairs.first] == labels[pairs.second])
    for text in range(len(labels)):
        own = pairs.similar[pairs.first == text]
        assert own.sum() == 5 and len(own) == 10
    itself = pairs.first == pairs.second
    assert set(pairs.first[itself]) == {5}, "only the text that is alone with its label"
    again, other = contrastive_pairs(labels, 5, seed=3), contrastive_pairs(labels, 5, seed=4)
    assert np.array_equal(again.second, pairs.second)
    assert not np.array_equal(other.second, pairs.second)
    assert neighbouring_pairs(labels).second.tolist() == [1, 2, 3, 4, 5, 0]


def table(path: Path, count: int, seed: int) -> str:
    """Write texts of a good and a bad kind of words."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for number in range(count):
            label = ("good", "bad")[number % 2]
            words = rng.choice([*WORDS[label].split(), "d", "e"], size=6)
            rows.writerow([" ".join(words), label])
    return str(path)


def trained(tmp_path: Path, model: Path, **changes: Any) -> Path:
    data = {
        "train": [table(tmp_path / "train.csv", 16, 0)],
        "eval": [table(tmp_path / "eval.csv", 40, 1)],
    }
    settings = {
        "task": "setfit",
        "init_from": {"model": str(model)},
        "data": data,
        "task_args": {"num_iterations": 4, "normalize": True},
        "optimizer": {"learning_rate": 1e-3},
        "report_to": [],
        **changes,
    }
    return FineTuneRun(settings, HERE, tmp_path / "run").start().model


@pytest.mark.by_default("mean")
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_model_is_an_encoder_with_the_regression_as_its_head(
    pretrained: Pretrained, tmp_path: Path, pooling: str
) -> None:
    source, _ = pretrained("BertModel")
    options = {"num_iterations": 4, "normalize": True, "pooling": pooling}
    path = trained(tmp_path, source, task_args=options)
    checkpoint = load_checkpoint(path)
    model = Model(checkpoint, load_session(checkpoint, "cpu"))
    rows = {}
    for name in ("train", "eval"):
        with (tmp_path / f"{name}.csv").open() as file:
            rows[name] = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    backbone: Any = checkpoint.family.model(checkpoint.config, "none")
    network: Any = checkpoint.family.model(checkpoint.config, "sequence-classification")
    with checkpoint.open_weights() as reader:
        state = {name: torch.from_numpy(np.array(reader.read(name))) for name in reader.tensors}
    missing = backbone.load_state_dict(state, strict=False).missing_keys
    assert [name for name in missing if not name.startswith("pooler.")] == []
    network.load_state_dict(state)
    assert not [name for name in state if "pooler" in name]

    def embed(texts: list[str]) -> np.ndarray[Any, Any]:
        vectors = []
        for text in texts:
            (encoded,) = model.tokenizer.encode([text], max_tokens=None)
            with torch.no_grad():
                hidden = backbone.eval()(torch.tensor([encoded.ids]))["last_hidden_state"][0]
            vector = hidden.mean(0) if pooling == "mean" else hidden[0]
            vectors.append((vector / vector.norm()).numpy())
        return np.array(vectors)

    texts, labels = zip(*rows["train"], strict=True)
    regression = LogisticRegression(tol=1e-10, max_iter=10_000).fit(embed(list(texts)), labels)
    more, wanted = zip(*rows["eval"], strict=True)
    expected = regression.predict_proba(embed(list(more)))
    results = model.classify(more)
    for result, probabilities in zip(results, expected, strict=True):
        scores = [result["scores"][label] for label in regression.classes_]
        assert scores == pytest.approx(probabilities.tolist(), abs=1e-4)
    right = sum(result["label"] == label for result, label in zip(results, wanted, strict=True))
    metrics = checkpoint.manifest.training["metrics"]  # type: ignore[index]
    assert metrics["accuracy"] == pytest.approx(right / 40)
    assert right >= 36


def test_the_loss_is_the_squared_error_of_cosines(pretrained: Pretrained, tmp_path: Path) -> None:
    from zoo.finetuning.config import finetune_config
    from zoo.finetuning.setup import finetune_setup

    source, _ = pretrained("BertModel")
    settings = {
        "task": "setfit",
        "init_from": {"model": str(source)},
        "data": {"train": [table(tmp_path / "train.csv", 8, 0)], "eval_fraction": 0.3},
        "task_args": {"num_iterations": 1},
        "report_to": [],
    }
    setup = finetune_setup(finetune_config(settings, {}))
    batch = next(iter(setup.eval_batches(HERE)))
    objective: Any = setup.objective
    model = objective.model(setup.family, setup.model_config).eval()
    outputs = objective.forward(model, batch.tensors)
    vectors = outputs.logits["setfit"]
    errors = (
        torch.cosine_similarity(vectors[:, 0], vectors[:, 1]) - batch.tensors["similar"]
    ).square()
    of_evaluation = ~batch.tensors["fitted"].bool()
    loss = objective.loss(outputs, batch.tensors).sums["setfit"]
    torch.testing.assert_close(loss, errors[of_evaluation].sum())
    assert batch.counts["setfit"] == int(of_evaluation.sum()) < len(errors)


@pytest.mark.parametrize(
    "family", every_family(["bert", "distilbert", "roberta", "albert", "electra", "deberta"])
)
def test_every_encoder_has_a_head_for_embeddings(family: str) -> None:
    kind = get_family(family)
    config = replace(kind.sizes()["tiny"], sentence_head="unit", pooling="mean")
    head = "sequence-classification"
    model: Any = kind.model(config, head).eval()
    names = {entry.target for entry in kind.weights(config, head).entries()}
    assert names == set(dict(model.named_parameters(remove_duplicate=False))) & names
    assert {name for name in names if name.startswith(("head", "pooler"))} == {
        "head.weight",
        "head.bias",
    }
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with torch.no_grad():
        hidden = model.encode_batch(ids, mask)
        means = torch.stack([hidden[0].mean(0), hidden[1, :2].mean(0)])
        expected = model.head(means / means.norm(dim=-1, keepdim=True))
        torch.testing.assert_close(model(ids, mask)["logits"], expected)


@pytest.mark.long
def test_the_model_is_exported_and_not_converted_to_the_hub(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    from tests.exporting.making import export_onnx
    from zoo.conversion.convert import convert
    from zoo.exporting.session import open_session
    from zoo.hub.source import CheckpointDir

    source, _ = pretrained("BertModel")
    path = trained(tmp_path, source, max_steps=1)
    checkpoint = load_checkpoint(path)
    export_onnx(checkpoint, tmp_path / "onnx")
    exported = load_checkpoint(tmp_path / "onnx")
    graph = Model(exported, open_session(exported, "onnx"))
    torch_model = Model(checkpoint, load_session(checkpoint, "cpu"))
    for ours, theirs in zip(graph.classify(["a b"]), torch_model.classify(["a b"]), strict=True):
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-5)
    with pytest.raises(UsageError, match=r"reads the embedding of a text.*zoo export"):
        convert(CheckpointDir(path, "run"), tmp_path / "hub", to="hub")


@pytest.mark.long
def test_without_its_classifier_the_model_is_a_sentence_encoder(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    from zoo.conversion.convert import convert
    from zoo.hub.source import CheckpointDir

    source, _ = pretrained("BertModel")
    path = trained(tmp_path, source, max_steps=1)
    convert(CheckpointDir(path, "run"), tmp_path / "hub", head="none", to="hub")
    texts = ["a b", "h i j", "d"]
    vectors = SentenceTransformer(str(tmp_path / "hub"), device="cpu").encode(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    with load_checkpoint(path).open_weights() as reader:
        weight, bias = (np.array(reader.read(f"head.{name}")) for name in ("weight", "bias"))
    expected = torch.from_numpy(vectors @ weight.T + bias).softmax(-1)
    checkpoint = load_checkpoint(path)
    results = Model(checkpoint, load_session(checkpoint, "cpu")).classify(texts)
    scores = [list(result["scores"].values()) for result in results]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ema_decay": 0.9}, "setfit does not support ema_decay"),
        ({"task_args": {"num_iterations": 0}}, "num_iterations is 0, not positive"),
        ({"task_args": {"pooling": "lasttoken"}}, "pooling is 'lasttoken', not mean or max or cls"),
    ],
)
def test_settings_are_checked(
    pretrained: Pretrained, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    source, _ = pretrained("BertModel")
    with pytest.raises(UsageError, match=message):
        trained(tmp_path, source, **changes)


def test_families_without_such_a_head_say_so(small: Small, tmp_path: Path) -> None:
    _, source = small("BertModel")
    assert converted(source, tmp_path / "again").family.name == "bert"
    with pytest.raises(UsageError, match="models of gpt have no classifier of embeddings"):
        trained(tmp_path, Path("unused"), init_from=None, family="gpt", size="tiny")
