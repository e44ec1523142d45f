"""A learned mix of layers: frozen models, the formula of the logits, conversion, continued runs."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import zoo
from tests.families import elmo_numpy
from tests.families.elmo_files import published
from tests.families.every import every_family
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, labelled, settings
from tests.inference.conftest import converted
from tests.tasks.token_classification.making import tagged
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.hub.source import CheckpointDir
from zoo.nn.capture import capture
from zoo.plugins import get_family

STEPS = {"max_steps": 6, "eval_steps": 6, "save_steps": 6, "optimizer": {"learning_rate": 0.05}}
MIX = {"task_args": {"layers": "mix"}}


def tensors(model: Path) -> dict[str, torch.Tensor]:
    return load_file(model / "model.safetensors")


def mixed(states: list[torch.Tensor], weights: dict[str, torch.Tensor], at: str) -> torch.Tensor:
    """Return gamma times the sum of the layers by their softmax weights, in float64."""
    scalars, gamma = weights[f"{at}.weights"].double(), weights[f"{at}.gamma"].double()
    assert len(scalars) == len(states)
    shares = scalars.exp() / scalars.exp().sum()
    total = sum(share * state.double() for share, state in zip(shares, states, strict=True))
    return gamma * total  # type: ignore[no-any-return]


@pytest.mark.by_default("text-classification-mix")
@pytest.mark.parametrize(
    "task, layers",
    [("text-classification", "mix"), ("token-classification", "mix"), ("token-classification", 0)],
)
def test_the_first_of_its_kind(tmp_path: Path, task: str, layers: str | int) -> None:
    """Frozen LSTMs, a mix that is learned, and a classifier of it, by the preset of the paper.

    With a layer in place of the mix, the classifier reads that layer alone.
    """
    source, golden = published(tmp_path / "elmo", dropout=0.0)
    start = converted(source, tmp_path / "pretrained")
    texts = task == "text-classification"
    table = labelled(tmp_path / "t.tsv") if texts else tagged(tmp_path / "t.conll")
    tree = settings(
        start.path,
        table,
        task=task,
        **{**STEPS, "preset": "paper", "task_args": {"layers": layers}},
    )
    del tree["lr_scheduler"]
    run = finetune(tmp_path / "run", tree)
    before, after = tensors(start.path), tensors(run / "model")
    new = {"layers.2.weights", "layers.2.gamma", "head.weight", "head.bias"}
    assert after.keys() == before.keys() | new
    frozen = before.keys() - new
    assert [name for name in frozen if not torch.equal(before[name], after[name])] == []
    assert float(after["layers.2.weights"].abs().max()) > 0.01
    gamma = float(after["layers.2.gamma"])
    assert gamma != 1

    model = zoo.load(run / "model", backend="cpu")
    ids: Any = model.tokenizer.encode(["c a b d"], max_tokens=None)[0].ids
    weights = {name: array.astype(np.float64) for name, array in golden.weights.items()}
    states = elmo_numpy.layers(golden.hub_config, weights, ids)
    outputs = [torch.from_numpy(state) for state in states]
    alone = isinstance(layers, int)
    hidden = gamma * outputs[int(layers)] if alone else mixed(outputs, after, "layers.2")
    pooled = hidden.max(0).values if texts else hidden
    expected = pooled @ after["head.weight"].double().T + after["head.bias"].double()
    (result,) = model.classify(["c a b d"])
    if texts:
        scores = list(result["scores"].values())
        assert scores == pytest.approx(expected.softmax(-1).tolist(), abs=1e-6)
    else:
        best = expected.softmax(-1)[1:-1].max(-1)  # without the boundaries
        names = [model.checkpoint.config.labels[int(k)] for k in best.indices]
        assert [token["label"] for token in result["tokens"]] == names
        scores = [token["score"] for token in result["tokens"]]
        assert scores == pytest.approx(best.values.tolist(), abs=1e-6)
    with pytest.raises(UsageError, match="the Hub has no class for elmo with the head"):
        convert(CheckpointDir(run / "model", "model"), tmp_path / "hub", to="hub")


@pytest.mark.long
def test_an_encoder(pretrained: Pretrained, tmp_path: Path) -> None:
    """The mix is of all hidden states that transformers computes, and goes on being used."""
    import transformers

    start, source = pretrained("BertModel")
    freeze = {"freeze_layers": 2, **MIX}
    run = finetune(
        tmp_path / "run", settings(start, labelled(tmp_path / "t.tsv"), **{**STEPS, **freeze})
    )
    before, after = tensors(start), tensors(run / "model")
    frozen = [name for name in before if not name.startswith("pooler")]
    assert [name for name in frozen if not torch.equal(before[name], after[name])] == []
    assert float(after["mix.weights"].abs().max()) > 0.01

    model = zoo.load(run / "model", backend="cpu")
    ids = torch.tensor([model.tokenizer.encode(["c a b d"], max_tokens=None)[0].ids])
    reference: Any = transformers.BertModel.from_pretrained(source)
    with torch.no_grad():
        states = reference.eval()(ids, output_hidden_states=True).hidden_states
    first = mixed([state[0, 0] for state in states], after, "mix")
    pooler = after["pooler.weight"].double(), after["pooler.bias"].double()
    pooled = torch.tanh(pooler[0] @ first + pooler[1])
    logits = after["head.weight"].double() @ pooled + after["head.bias"].double()
    (result,) = model.classify(["c a b d"])
    assert list(result["scores"].values()) == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)

    with pytest.raises(UsageError, match="mix of all layers, which no class of the Hub has"):
        convert(CheckpointDir(run / "model", "model"), tmp_path / "hub", to="hub")
    convert(CheckpointDir(run / "model", "model"), tmp_path / "backbone", head="none")
    assert "mix.weights" not in tensors(tmp_path / "backbone")
    again = finetune(
        tmp_path / "again",
        settings(run / "model", tmp_path / "t.tsv", **{**STEPS, "max_steps": 1, "eval_steps": 1})
        | {"save_steps": 1, "optimizer": {"learning_rate": 1e-12}},
    )
    assert load_checkpoint(again / "model").config.mix  # type: ignore[attr-defined]
    torch.testing.assert_close(
        tensors(again / "model")["mix.weights"], after["mix.weights"], rtol=0, atol=1e-9
    )


FAMILIES = ("albert", "deberta", "distilbert", "electra", "gpt", "roberta", "t5")


@pytest.mark.parametrize("name", every_family(FAMILIES))
@pytest.mark.parametrize("head", ["token-classification", "sequence-classification"])
def test_rules_of_a_mix(name: str, head: str) -> None:
    """Each parameter has a rule; at first, the head reads the mean of the layers."""
    family: Any = get_family(name)
    config = msgspec.structs.replace(family.sizes()["tiny"], mix=True)
    model = family.model(config, head).eval()
    parameters = {name for name, _ in model.named_parameters()}
    assert parameters == {entry.target for entry in family.weights(config, head).entries()}
    by_decoder = name == "t5" and head == "sequence-classification"
    stack = model.decoder if by_decoder else model
    mixed = list[torch.Tensor]()
    stack.mix.register_forward_hook(lambda module, args, output: mixed.append(output))
    with torch.inference_mode(), capture(stack, hidden="all") as taken:
        model(torch.randint(5, 100, (2, 6)))
    states = [taken.hidden[number] for number in range(config.num_layers + 1)]
    torch.testing.assert_close(mixed[0], torch.stack(states).mean(0), rtol=0, atol=1e-5)
    with pytest.raises(UsageError, match="mix of all layers"):
        family.architecture(config, head)
    assert not family.has_reference(config, head)


@pytest.mark.by_default("gpt")
@pytest.mark.parametrize("name", ["gpt", "t5"])
def test_a_mix_in_place_of_the_last_layer(tmp_path: Path, name: str) -> None:
    """The classifier reads the state of the token that the family classifies texts by."""
    table = labelled(tmp_path / "t.tsv")
    run = finetune(tmp_path / "run", settings(name, table, vocab_size=300, **{**STEPS, **MIX}))
    model = zoo.load(run / "model", backend="cpu")
    network: Any = model.session.model  # type: ignore[attr-defined]
    stack, at = (network.decoder, "decoder.mix") if name == "t5" else (network, "mix")
    with capture(stack, hidden="all") as taken:
        (result,) = model.classify(["c a b d"])
    states = [taken.hidden[number][0, -1] for number in range(len(taken.hidden))]
    hidden, weights = mixed(states, tensors(run / "model"), at), tensors(run / "model")
    assert float(weights[f"{at}.weights"].abs().max()) > 0.01
    if name == "t5":
        dense = weights["head.dense.weight"].double() @ hidden + weights["head.dense.bias"].double()
        out = weights["head.out.weight"].double() @ dense.tanh() + weights["head.out.bias"].double()
    else:
        out = weights["head.weight"].double() @ hidden
    assert list(result["scores"].values()) == pytest.approx(out.softmax(-1).tolist(), abs=1e-5)


def test_the_mix_is_no_state_of_a_language_model(tmp_path: Path) -> None:
    changes = {"task_args": {"layers": "mix", "lm_coef": 0.5}}
    with pytest.raises(UsageError, match="does not predict tokens"):
        finetune(tmp_path / "run", settings("gpt", labelled(tmp_path / "t.tsv"), **changes))


def test_a_layer_that_the_model_has_not(tmp_path: Path) -> None:
    tree = settings("gpt", labelled(tmp_path / "t.tsv"), vocab_size=300, task_args={"layers": 9})
    with pytest.raises(UsageError, match=r"layers is 9, and the model has \d layers with the emb"):
        finetune(tmp_path / "run", tree)


def test_presets_freeze_what_was_pretrained(tmp_path: Path) -> None:
    values = {"family": "elmo", "task": "text-classification", "data": {"train": ["t.tsv"]}}
    assert finetune_config(values, {}).freeze_layers == 0
    start = converted(published(tmp_path / "elmo")[0], tmp_path / "pretrained")
    assert (
        finetune_config({**values, "init_from": {"model": str(start.path)}}, {}).freeze_layers == 2
    )
    assert finetune_config(values, {"freeze_layers": 1}).freeze_layers == 1
