"""Checkpoints of transformers 5 whose output embeddings are not tied.

Its masked-LM heads then have two biases of the vocabulary's size, and add only the decoder's.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.checkpoints import SMALL
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.inference.load_model import load_model

INPUTS = {"input_ids": torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])}
INPUTS["attention_mask"] = INPUTS["input_ids"].ne(0).long()
BIASES = {
    "BertForMaskedLM": "cls.predictions",
    "BertForPreTraining": "cls.predictions",
    "AlbertForMaskedLM": "predictions",
    "RobertaForMaskedLM": "lm_head",
    "CamembertForMaskedLM": "lm_head",
    "XLMRobertaForMaskedLM": "lm_head",
}


def from_hub(path: Path) -> CheckpointDir:
    return CheckpointDir(path, str(path))


def saved(architecture: str, path: Path, tie: bool) -> Any:
    """Write a model with random values in all tensors; return it."""
    torch.manual_seed(0)
    kind: Any = getattr(transformers, architecture)
    config = kind.config_class(**SMALL, tie_word_embeddings=tie, pad_token_id=0)
    model = kind(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    model.save_pretrained(path)
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        outputs = model(**INPUTS)
    names = ("logits", "prediction_logits")
    return next(outputs[name] for name in names if name in outputs)  # type: ignore[no-any-return]


@pytest.mark.by_default("BertForMaskedLM", "BertForPreTraining", "RobertaForMaskedLM")
@pytest.mark.parametrize("architecture", BIASES)
def test_the_bias_that_the_reference_uses_is_converted(architecture: str, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    expected = logits(saved(architecture, source, tie=False))
    unused = BIASES[architecture] + ".bias"
    used = BIASES[architecture] + ".decoder.bias"
    stored = load_file(source / "model.safetensors")
    assert not torch.equal(stored[unused], stored[used])

    report = convert(from_hub(source), tmp_path / "ours")
    assert {name: drop.reason for name, drop in report.mapping.drops.items()} == {
        unused: f"the model uses {used} instead"
    }
    model = load_model(load_checkpoint(tmp_path / "ours"))
    assert torch.allclose(logits(model), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))

    convert(from_hub(tmp_path / "ours"), back, to="hub")
    again, loading = getattr(transformers, architecture).from_pretrained(
        back, output_loading_info=True
    )
    assert {key: value for key, value in loading.items() if value} == {}
    assert torch.equal(logits(again.eval()), expected)


def test_the_bias_of_older_releases_is_read(tmp_path: Path) -> None:
    """Earlier releases of transformers have one parameter, which they save under one name."""
    saved("BertForMaskedLM", tmp_path / "source", tie=False)
    path = tmp_path / "source" / "model.safetensors"
    stored = load_file(path)
    stored["cls.predictions.bias"] = stored.pop("cls.predictions.decoder.bias")
    save_file(stored, path)
    report = convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    assert not report.mapping.drops
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    assert torch.equal(ours["head.bias"], stored["cls.predictions.bias"])


def test_the_hint_for_tied_tensors_that_differ_helps(tmp_path: Path) -> None:
    source = tmp_path / "source"
    saved("BertForMaskedLM", source, tie=True)
    path = source / "model.safetensors"
    stored = load_file(path)
    decoder = {
        "cls.predictions.decoder.weight": stored["bert.embeddings.word_embeddings.weight"] + 1,
        "cls.predictions.decoder.bias": stored["cls.predictions.bias"] + 1,
    }
    save_file(stored | decoder, path)
    with pytest.raises(VerificationError, match="set tie_word_embeddings to false"):
        convert(from_hub(source), tmp_path / "ours")
    config = (source / "config.json").read_text()
    assert '"tie_word_embeddings": true' in config
    (source / "config.json").write_text(config.replace('embeddings": true', 'embeddings": false'))
    convert(from_hub(source), tmp_path / "ours")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    assert torch.equal(ours["head.decoder.weight"], decoder["cls.predictions.decoder.weight"])


@pytest.mark.parametrize(
    ("architecture", "alias"),
    [
        ("DebertaV2ForMaskedLM", "cls.predictions.decoder.bias"),  # cannot be untied
        ("T5ForConditionalGeneration", "encoder.embed_tokens.weight"),  # one table in any case
    ],
)
def test_no_hint_where_the_tie_cannot_be_removed(
    architecture: str, alias: str, tmp_path: Path
) -> None:
    small = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    kind: Any = getattr(transformers, architecture)
    settings = {**small, "vocab_size": 17} if "T5" in architecture else SMALL
    kind(kind.config_class(**settings)).save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    stored = load_file(path)
    owner = "shared.weight" if "T5" in architecture else "cls.predictions.bias"
    save_file(stored | {alias: stored[owner] + 1}, path)
    with pytest.raises(VerificationError, match="differ") as caught:
        convert(from_hub(tmp_path / "source"), tmp_path / "ours")
    assert "tie_word_embeddings" not in str(caught.value)
    assert "one tensor for both" in str(caught.value)
