"""Adapters that were made here open in peft, with equal outputs, or are not written."""

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.adapters.making import FAMILIES, base_of, write_random_adapter, zoo
from tests.checkpoints import Make
from zoo.checkpoint import load_checkpoint
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.inference.load_model import load_model

LONG = pytest.mark.long
LORA: dict[str, Any] = {"method": "lora", "rank": 2, "alpha": 3.0}
OUTPUTS = ("start_logits", "logits", "prediction_logits", "sop_logits")
IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 8, 6, 3]])


def sizes_of(architecture: str) -> dict[str, Any]:
    family = architecture.partition("For")[0]
    labels = {"num_labels": 2} if "QuestionAnswering" in architecture else {}
    return {**FAMILIES[f"{family}ForSequenceClassification"], **labels}


def outputs_of(model: nn.Module, **inputs: Tensor) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        outputs: Any = model(input_ids=IDS, **inputs)
    return [outputs[name] for name in OUTPUTS if name in outputs]


def decoder_inputs(config: Any) -> dict[str, Tensor]:
    """Return the inputs of a decoder, which its class on the Hub makes: the source, shifted."""
    start = torch.full((len(IDS), 1), config.decoder_start_token_id)
    return {"decoder_input_ids": torch.cat([start, IDS[:, :-1]], 1)}


@pytest.mark.by_default("GPT2ForSequenceClassification")
@pytest.mark.parametrize(
    ("architecture", "with_head", "settings"),
    [
        # A target is also the name of a module of the head, and the scaled input is not.
        (
            "BartForSequenceClassification",
            False,
            {
                "method": "ia3",
                "target_modules": ["fc2", "out_proj"],
                "feedforward_modules": ["fc2"],
            },
        ),
        # A scaled input has a name that ends another target, which peft compares without a point.
        (
            "T5ForSequenceClassification",
            True,
            {"method": "ia3", "target_modules": ["o", "wo"], "feedforward_modules": ["o"]},
        ),
        # peft looks for the head, which only the base has.
        ("BertForSequenceClassification", False, LORA),
        pytest.param("DistilBertForSequenceClassification", False, {"method": "ia3"}, marks=LONG),
        ("GPT2ForSequenceClassification", False, {**LORA, "method": "dora"}),
        pytest.param("RobertaForQuestionAnswering", False, LORA, marks=LONG),
        pytest.param("T5ForTokenClassification", False, LORA, marks=LONG),
        ("BertForSequenceClassification", False, {"method": "prompt", "num_virtual_tokens": 3}),
        # peft looks for a tied tensor in a head that is saved.
        ("BertForMaskedLM", True, LORA),
        pytest.param("AlbertForPreTraining", True, LORA, marks=LONG),
        pytest.param("ElectraForMaskedLM", True, {"method": "ia3"}, marks=LONG),
        pytest.param("RobertaForMaskedLM", True, LORA, marks=LONG),
    ],
)
def test_peft_opens_it_and_it_is_read_back(
    architecture: str,
    with_head: bool,
    settings: dict[str, Any],
    hub_checkpoint: Make,
    tmp_path: Path,
) -> None:
    path, source = base_of(hub_checkpoint, architecture, tmp_path, **sizes_of(architecture))
    base = load_checkpoint(path)
    write_random_adapter(base, tmp_path / "ours", with_head=with_head, **settings)
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "hub")
    kind = getattr(transformers, architecture)
    opened = peft.PeftModel.from_pretrained(kind.from_pretrained(source), tmp_path / "hub")
    expected = outputs_of(opened)
    zoo("convert", tmp_path / "hub", "--base", path, "-o", tmp_path / "back")
    has_decoder = "decoder_input_ids" in base.head.inputs
    inputs = decoder_inputs(base.config) if has_decoder else {}
    for name in ("ours", "back"):
        ours = outputs_of(load_model(resolve_checkpoint(str(tmp_path / name))), **inputs)
        assert len(ours) == len(expected) > 0
        for one, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.by_default("BertForMaskedLM-prompt", "T5ForTokenClassification")
@pytest.mark.parametrize(
    ("architecture", "method"),
    [
        ("BertForMaskedLM", "prompt"),  # peft opens both and does not apply them
        ("BertForMaskedLM", "prefix"),
        ("BertForMultipleChoice", "prompt"),
        ("AlbertForSequenceClassification", "prefix"),  # classes that take no past keys
        ("DistilBertForSequenceClassification", "prefix"),
        ("OpenAIGPTForSequenceClassification", "prefix"),
        ("T5ForTokenClassification", "prefix"),
        ("BartForSequenceClassification", "prompt"),  # a decoder that needs token ids
        ("T5ForQuestionAnswering", "prompt"),
    ],
)
def test_what_peft_does_not_apply_is_not_written(
    architecture: str, method: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    path, _ = base_of(hub_checkpoint, architecture, tmp_path, **sizes_of(architecture))
    write_random_adapter(
        load_checkpoint(path), tmp_path / "ours", method=method, num_virtual_tokens=3
    )
    with pytest.raises(UsageError, match=f"peft has no {method} of a model of"):
        zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


def test_a_tied_tensor_with_other_values_is_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    """peft trains a copy of it, which a model with tied tensors does not have."""
    path, _ = base_of(hub_checkpoint, "BertForMaskedLM", tmp_path)
    base = load_checkpoint(path)
    write_random_adapter(base, tmp_path / "ours", with_head=True, **LORA)
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "hub")
    file = tmp_path / "hub" / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors["base_model.model.cls.predictions.decoder.weight"][3, 4] += 1
    save_file(tensors, file)
    with pytest.raises(VerificationError, match=r"decoder\.weight differs from the tensor"):
        zoo("convert", tmp_path / "hub", "--base", path, "-o", tmp_path / "back")


@pytest.mark.long
def test_the_head_of_a_base_in_bfloat16_is_widened(hub_checkpoint: Make, tmp_path: Path) -> None:
    _, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    model = transformers.BertForSequenceClassification.from_pretrained(source)
    model.to(torch.bfloat16).save_pretrained(tmp_path / "half")
    zoo("convert", tmp_path / "half", "-o", tmp_path / "half-base")
    base = load_checkpoint(tmp_path / "half-base")
    write_random_adapter(base, tmp_path / "ours", **LORA)
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "hub")
    written = load_file(tmp_path / "hub" / "adapter_model.safetensors")
    weight = written["base_model.model.classifier.weight"]
    torch.testing.assert_close(weight, model.classifier.weight.float(), atol=0, rtol=0)
    settings = json.loads((tmp_path / "hub" / "adapter_config.json").read_text())
    assert settings["modules_to_save"] == ["classifier"]
