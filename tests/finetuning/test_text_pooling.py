"""Pooling of texts in classifiers: the formula of the logits, padding, export, what is refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, labelled, settings, texts, write_table
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.plugins import get_family

SHORT = {"max_steps": 2, "eval_steps": 2, "save_steps": 2}
POOLINGS = ("mean", "max")


def pooled(states: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return the mean or maximum of (tokens, hidden), in float64."""
    states = states.double()
    return states.mean(0) if pooling == "mean" else states.max(0).values


@pytest.mark.long
@pytest.mark.parametrize("pooling", ["mean", pytest.param("max", marks=pytest.mark.long)])
def test_the_pooler_reads_all_tokens(pretrained: Pretrained, tmp_path: Path, pooling: str) -> None:
    """Of texts of several lengths together; also in a run that goes on, and in ONNX Runtime."""
    import transformers

    start, source = pretrained("BertModel")
    table = labelled(tmp_path / "t.tsv")
    frozen = {"freeze_layers": 2, "task_args": {"pooling": pooling}, **SHORT}
    run = finetune(tmp_path / "run", settings(start, table, **frozen))
    after = load_file(run / "model" / "model.safetensors")
    model = zoo.load(run / "model", backend="cpu")
    reference: Any = transformers.BertModel.from_pretrained(source).eval()
    sentences = ["c a b d", "a", "j i h a b c d e f"]
    expected = []
    for sentence in sentences:
        ids = torch.tensor([model.tokenizer.encode([sentence], max_tokens=None)[0].ids])
        with torch.no_grad():
            vector = pooled(reference(ids).last_hidden_state[0], pooling)
        hidden = torch.tanh(after["pooler.weight"].double() @ vector + after["pooler.bias"])
        logits = after["head.weight"].double() @ hidden + after["head.bias"]
        expected.append(logits.softmax(-1).tolist())
    for result, scores in zip(model.classify(sentences), expected, strict=True):
        assert list(result["scores"].values()) == pytest.approx(scores, abs=1e-5)

    with pytest.raises(UsageError, match=f"reads the {pooling} of a text's tokens, which no class"):
        convert(CheckpointDir(run / "model", "model"), tmp_path / "hub", to="hub")
    convert(CheckpointDir(run / "model", "model"), tmp_path / "backbone", head="none")
    again = finetune(tmp_path / "again", settings(run / "model", table, **SHORT))
    assert load_checkpoint(again / "model").config.pooling == pooling  # type: ignore[attr-defined]
    first = {"task_args": {"pooling": "cls"}, **SHORT}
    back = finetune(tmp_path / "back", settings(run / "model", table, **first))
    assert load_checkpoint(back / "model").config.pooling is None  # type: ignore[attr-defined]
    convert(CheckpointDir(back / "model", "model"), tmp_path / "back-hub", to="hub")

    done = warm.zoo("export", str(run / "model"), "--onnx", "-o", str(tmp_path / "onnx"))
    assert done.returncode == 0, done.stderr
    exported = zoo.load(tmp_path / "onnx", backend="onnx").classify(sentences)
    for result, scores in zip(exported, expected, strict=True):
        assert list(result["scores"].values()) == pytest.approx(scores, abs=1e-5)


ENCODERS = ("albert", "bert", "deberta", "distilbert", "electra", "roberta")


@pytest.mark.by_default("bert")
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("name", ENCODERS)
def test_padding_and_packed_rows_change_nothing(name: str, pooling: str) -> None:
    family: Any = get_family(name)
    config = msgspec.structs.replace(
        family.sizes()["tiny"], pooling=pooling, dropout=0.0, attention_dropout=0.0
    )
    torch.manual_seed(0)
    model = family.model(config, "sequence-classification").double().eval()
    lengths = (7, 3, 1)
    ids = torch.randint(5, 100, (3, 7))
    mask = (torch.arange(7) < torch.tensor(lengths)[:, None]).long()
    single = [model(ids[k : k + 1, :n])["logits"][0] for k, n in enumerate(lengths)]
    assert not torch.equal(single[0], single[1])
    together = model(ids, mask)["logits"]
    torch.testing.assert_close(together, torch.stack(single), rtol=0, atol=1e-12)
    for module in model.modules():  # no dropout before the head, too
        if hasattr(module, "p"):
            module.p = 0.0
    model.train()
    model.packs_rows = True
    torch.testing.assert_close(model(ids, mask)["logits"], together, rtol=0, atol=1e-12)
    words = family.model(config, "token-classification").eval()
    assert words(ids, mask)["logits"].shape[:2] == (3, 7)


def test_regression_and_several_labels(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    numbers = write_table(tmp_path / "n.tsv", [{"text": t, "label": len(t) % 5} for t in texts(40)])
    for task in ("regression", "multi-label"):
        tree = settings(model, numbers, task=task, task_args={"pooling": "mean"}, **SHORT)
        run = finetune(tmp_path / task, tree)
        assert load_checkpoint(run / "model").config.pooling == "mean"  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", ["gpt", "elmo", "t5"])
def test_families_that_pool_in_another_way_are_refused(family: str, tmp_path: Path) -> None:
    tree = settings(family, labelled(tmp_path / "t.tsv"), task_args={"pooling": "max"})
    with pytest.raises(UsageError, match=f"models of {family} have no other pooling of texts"):
        finetune(tmp_path / "run", tree)
