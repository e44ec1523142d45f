"""Scores of cross-encoders, in each place where versions of sentence-transformers say how."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.checkpoints import Make, hub_checkpoint
from tests.closeness import assert_same, assert_within
from tests.inference.conftest import converted
from zoo.api import Model
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo.inference import load_session
from zoo.sentence_models.module_files import ACTIVATIONS, activation_named, activation_path
from zoo.sentence_models.numpy_modules import activate

__all__ = ["Make", "hub_checkpoint"]
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
IDENTITY_FN = torch.nn.Identity()
PAIRS = [("a b", "c"), ("d", "e f")]
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]


def write(folder: Path, place: str, activation: str, **more: Any) -> None:
    """Add the activation to a checkpoint, where a version of the library writes it."""
    config = json.loads((folder / "config.json").read_text())
    match place:
        case "old":
            config["sbert_ce_default_activation_function"] = activation
        case "group":
            config["sentence_transformers"] = {"activation_fn": activation, "version": "5.1.0"}
        case "settings":
            settings = {"model_type": "CrossEncoder", "activation_fn": activation, "prompts": {}}
            text = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
            (folder / "modules.json").write_text(json.dumps(MODULES))
            (folder / "sentence_bert_config.json").write_text(json.dumps(text))
            path = folder / "config_sentence_transformers.json"
            path.write_text(json.dumps({**settings, **more}))
    (folder / "config.json").write_text(json.dumps(config))


def make(hub_checkpoint: Make, labels: int = 1) -> Path:
    names = {k: f"LABEL_{k}" for k in range(labels)}
    return hub_checkpoint("BertForSequenceClassification", id2label=names)


def logits(folder: Path, dtype: str = "float32") -> torch.Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network: Any = transformers.BertForSequenceClassification.from_pretrained(folder)
    network = network.to(getattr(torch, dtype))
    with torch.no_grad():
        rows = [network.eval()(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in PAIRS]
    return torch.stack(rows)


@pytest.mark.by_default("settings")
@pytest.mark.parametrize("activation", [SIGMOID, IDENTITY])
@pytest.mark.parametrize("place", ["old", "group", "settings"])
def test_scores_are_made_by_the_function_of_the_model(
    hub_checkpoint: Make, tmp_path: Path, place: str, activation: str
) -> None:
    """Also of a directory in the Hub's layout that was written from the converted one."""
    source = make(hub_checkpoint)
    write(source, place, activation)
    checkpoint = converted(source, tmp_path / "model")
    hub = tmp_path / "hub"
    convert(CheckpointDir(checkpoint.path, "model"), hub, to="hub")
    config = json.loads((hub / "config.json").read_text())
    if place == "old":
        assert config["sbert_ce_default_activation_function"] == activation
    else:
        assert config["sentence_transformers"]["activation_fn"] == activation
    for dtype in ("float32", "float64"):
        expected = logits(source, dtype)[:, 0]
        expected = expected.sigmoid() if activation == SIGMOID else expected
        for read in (checkpoint, converted(hub, tmp_path / dtype)):
            results = Model(read, load_session(read, "cpu", dtype=dtype)).classify(PAIRS)
            assert_same([result["score"] for result in results], expected, dtype)


@pytest.mark.parametrize("path", [*ACTIVATIONS])
def test_functions_are_those_of_torch(path: str) -> None:
    kind: Any = getattr(torch.nn, path.rpartition(".")[2])
    logits = torch.linspace(-9, 9, 37, dtype=torch.float64)
    found = activate(logits.numpy(), activation_named(path, "a file"))
    np.testing.assert_allclose(found, kind()(logits).numpy(), rtol=1e-12, atol=1e-15)
    assert activation_path(activation_named(f"torch.nn.{kind.__name__}", "a file")) == path


def test_prompts_precede_the_query(hub_checkpoint: Make, tmp_path: Path) -> None:
    """With another function, a length, and the files that come back."""
    from sentence_transformers import CrossEncoder

    settings: dict[str, Any] = {
        "prompts": {"search": "a b ", "other": "c "},
        "default_prompt_name": "search",
        "activation_fn": torch.nn.Softplus(),
        "max_length": 9,
    }
    theirs = CrossEncoder(str(make(hub_checkpoint)), device="cpu", **settings)
    theirs.save(str(tmp_path / "theirs"), create_model_card=False)
    path = tmp_path / "theirs" / "sentence_bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_seq_length": 9}))
    checkpoint = converted(tmp_path / "theirs", tmp_path / "model")
    pairs = [*PAIRS, ("a b c d", "e f g h i j")]  # the last one is cut
    with pytest.warns(match="was longer than 9 tokens and was cut"):
        found = Model(checkpoint, load_session(checkpoint, "cpu")).classify(pairs)
    expected = theirs.predict(pairs)
    assert_same([row["score"] for row in found], expected)
    ours: Any = Model(checkpoint, load_session(checkpoint, "cpu"))
    query, texts = "a", ["b", "c", "d"]
    for options in ({"prompt_name": "other"}, {"prompt": "j "}):
        expected_scores = [row["score"] for row in theirs.rank(query, texts, **options)]
        scores = [row["score"] for row in ours.rerank(query, texts, **options)]
        assert_same(scores, expected_scores)
    with pytest.raises(UsageError, match=r"the model has no prompt 'othr': .*; did you mean other"):
        ours.rerank(query, texts, prompt_name="othr")
    convert(CheckpointDir(checkpoint.path, "model"), tmp_path / "hub", to="hub")
    again = CrossEncoder(str(tmp_path / "hub"), device="cpu")
    assert_within(again.predict(pairs), expected)
    assert (again.prompts["other"], again.default_prompt_name) == ("c ", "search")
    assert type(again.activation_fn) is torch.nn.Softplus
    second = converted(tmp_path / "hub", tmp_path / "second")
    assert second.model == checkpoint.model


@pytest.mark.long
@pytest.mark.parametrize("function", [None, torch.nn.Tanh()])
def test_several_labels_have_prompts_and_a_length(
    hub_checkpoint: Make, tmp_path: Path, function: Any
) -> None:
    from sentence_transformers import CrossEncoder

    settings: dict[str, Any] = {"prompts": {"nli": "a b "}, "default_prompt_name": "nli"}
    source = str(make(hub_checkpoint, labels=3))
    theirs = CrossEncoder(source, device="cpu", activation_fn=function, **settings)
    theirs.save(str(tmp_path / "theirs"), create_model_card=False)
    path = tmp_path / "theirs" / "sentence_bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_seq_length": 9}))
    theirs = CrossEncoder(str(tmp_path / "theirs"), device="cpu")
    pairs = [*PAIRS, ("a b c d", "e f g h i j")]  # the last one is cut
    expected = torch.softmax(torch.tensor(theirs.predict(pairs, activation_fn=IDENTITY_FN)), -1)
    checkpoint = converted(tmp_path / "theirs", tmp_path / "model")
    with pytest.warns(match="was longer than 9 tokens and was cut"):
        found = Model(checkpoint, load_session(checkpoint, "cpu")).classify(pairs)
    assert_same([[*row["scores"].values()] for row in found], expected)
    convert(CheckpointDir(checkpoint.path, "model"), tmp_path / "hub", to="hub")
    again = CrossEncoder(str(tmp_path / "hub"), device="cpu")
    assert_within(again.predict(pairs), theirs.predict(pairs))
    assert (again.prompts["nli"], again.default_prompt_name) == ("a b ", "nli")
    assert type(again.activation_fn) is type(theirs.activation_fn)
    assert converted(tmp_path / "hub", tmp_path / "second").model == checkpoint.model


def test_the_default_function_of_one_label_is_a_sigmoid(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    source = make(hub_checkpoint)
    write(source, "settings", SIGMOID)
    path = source / "config_sentence_transformers.json"
    path.write_text(json.dumps({"model_type": "CrossEncoder", "prompts": {}}))
    expected = CrossEncoder(str(source), device="cpu").predict(PAIRS)
    checkpoint = converted(source, tmp_path / "model")
    found = Model(checkpoint, load_session(checkpoint, "cpu")).classify(PAIRS)
    assert_same([row["score"] for row in found], expected)


def test_the_function_of_several_labels_is_kept(hub_checkpoint: Make, tmp_path: Path) -> None:
    """Probabilities are those of the labels; another library's function does not change them."""
    source = make(hub_checkpoint, labels=3)
    write(source, "group", "torch.nn.modules.activation.Tanh")
    checkpoint = converted(source, tmp_path / "model")
    (result, _) = Model(checkpoint, load_session(checkpoint, "cpu")).classify(PAIRS)
    expected = logits(source)[0].softmax(0).max()
    assert_same(result["score"], expected)
    convert(CheckpointDir(checkpoint.path, "model"), tmp_path / "hub", to="hub")
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert config["sentence_transformers"]["activation_fn"].endswith("Tanh")


@pytest.mark.parametrize(
    ("place", "activation", "more", "message"),
    [
        ("old", "torch.nn.Hardtanh", {}, "sbert_ce_default_activation_function = 'torch.nn.Hard"),
        ("group", "my.Function", {}, "sentence_transformers.activation_fn = 'my.Function' is not"),
        (
            "settings",
            "os.system",
            {},
            "activation_fn = 'os.system' is not implemented; of torch.nn",
        ),
        ("settings", SIGMOID, {"prompts": ["q "]}, "prompts = .* are not names and texts"),
        ("settings", SIGMOID, {"truncate_dim": 3}, "truncate_dim = 3 is not implemented"),
        ("settings", SIGMOID, {"keep_in_fp32_modules": ["0.model"]}, "keep_in_fp32_modules = "),
        ("settings", SIGMOID, {"new": 1}, "the key 'new' is unknown"),
    ],
)
def test_what_is_not_implemented_is_refused(
    hub_checkpoint: Make,
    tmp_path: Path,
    place: str,
    activation: str,
    more: dict[str, Any],
    message: str,
) -> None:
    source = make(hub_checkpoint)
    write(source, place, activation, **more)
    with pytest.raises(VerificationError, match=message):
        converted(source, tmp_path / "model")
    assert not (tmp_path / "model").exists()
