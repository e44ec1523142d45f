"""Adapters of peft for the heads that ``test_read.py`` leaves out, each with one family."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.adapters.making import FAMILIES, IA3_TARGETS, LORA_TARGETS, base_of, randomize, zoo
from tests.checkpoints import Make
from zoo.conversion.cache import resolve_checkpoint
from zoo.inference.load_model import load_model

# architecture, method, task type in peft and modules that are trained as a whole
CASES = (  # test_read.py or another case has the modules of the long ones, and others their heads
    pytest.param("AlbertForTokenClassification", "dora", "TOKEN_CLS", None, marks=pytest.mark.long),
    ("BartForConditionalGeneration", "ia3", None, None),
    ("BertForMaskedLM", "lora", None, None),
    ("BertForMultipleChoice", "ia3", None, ["classifier"]),
    pytest.param("DebertaForMaskedLM", "ia3", None, None, marks=pytest.mark.long),
    ("DebertaV2ForTokenClassification", "lora", "TOKEN_CLS", None),
    ("DistilBertForQuestionAnswering", "lora", "QUESTION_ANS", None),
    pytest.param(
        "ElectraForQuestionAnswering", "dora", "QUESTION_ANS", None, marks=pytest.mark.long
    ),
    ("GPT2LMHeadModel", "lora", "CAUSAL_LM", None),
    pytest.param("OpenAIGPTLMHeadModel", "ia3", "CAUSAL_LM", None, marks=pytest.mark.long),
    ("RobertaModel", "lora", "FEATURE_EXTRACTION", None),
    # like BART's, and like the encoder of test_the_class_of_models_names_the_head
    pytest.param("T5ForConditionalGeneration", "lora", None, None, marks=pytest.mark.long),
    pytest.param("T5ForTokenClassification", "ia3", "TOKEN_CLS", None, marks=pytest.mark.long),
)
OUTPUTS = ("start_logits", "end_logits", "logits", "last_hidden_state", "pooler_output")


def family_of(architecture: str) -> str:
    name = architecture.partition("For")[0]
    return name.removesuffix("LMHeadModel").removesuffix("EncoderModel").removesuffix("Model")


def inputs_of(architecture: str) -> dict[str, Tensor]:
    ids = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 8, 6, 3]])
    if architecture.endswith("MultipleChoice"):
        return {"input_ids": torch.stack([ids, ids.flip(1)], 1)}
    if architecture.endswith("ConditionalGeneration"):
        return {"input_ids": ids, "decoder_input_ids": torch.tensor([[0, 5, 9], [0, 8, 7]])}
    return {"input_ids": ids}


def outputs_of(model: nn.Module, architecture: str) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        found: Any = model(**inputs_of(architecture))
    return [found[name] for name in OUTPUTS if name in found]


def adapted(architecture: str, method: str, source: Path, task: str | None, whole: Any) -> Any:
    family = family_of(architecture)
    model = getattr(transformers, architecture).from_pretrained(source)
    shared: dict[str, Any] = {"task_type": task, "modules_to_save": whole}
    if method == "ia3":
        targets, inner = IA3_TARGETS.get(family, (None, None))
        config: Any = peft.IA3Config(target_modules=targets, feedforward_modules=inner, **shared)
    else:
        targets, is_dora = LORA_TARGETS.get(family), method == "dora"
        config = peft.LoraConfig(r=4, target_modules=targets, use_dora=is_dora, **shared)
    theirs: Any = peft.get_peft_model(model, config)
    randomize(theirs)
    return theirs


@pytest.mark.by_default("DebertaV2ForTokenClassification")
@pytest.mark.parametrize(("architecture", "method", "task", "whole"), CASES)
def test_each_library_opens_the_others(
    architecture: str,
    method: str,
    task: str | None,
    whole: list[str] | None,
    hub_checkpoint: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = getattr(transformers, architecture)
    if architecture.endswith("ConditionalGeneration"):  # peft 0.21 looks for a method of version 4
        name = "_prepare_encoder_decoder_kwargs_for_generation"
        monkeypatch.setattr(kind, name, None, raising=False)
    changes = dict(FAMILIES[f"{family_of(architecture)}ForSequenceClassification"])
    if "QuestionAnswering" in architecture:
        changes["num_labels"] = 2
    base, source = base_of(hub_checkpoint, architecture, tmp_path, **changes)
    theirs = adapted(architecture, method, source, task, whole)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    expected = outputs_of(theirs, architecture)
    zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")
    ours = load_model(resolve_checkpoint(str(tmp_path / "ours")))
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "back")
    back = peft.PeftModel.from_pretrained(kind.from_pretrained(source), tmp_path / "back")
    for model in (ours, back):
        found = outputs_of(model, architecture)
        assert len(found) == len(expected) > 0
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.by_default("BertForMaskedLM")
@pytest.mark.parametrize(
    ("architecture", "of_base", "head"),
    [
        ("BertForMaskedLM", "BertForPreTraining", "masked-lm"),
        ("T5EncoderModel", "T5ForConditionalGeneration", "encoder"),
    ],
)
def test_the_class_of_models_names_the_head(
    architecture: str, of_base: str, head: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Where peft has no type of the task, and the base has another head."""
    changes = dict(FAMILIES[f"{family_of(architecture)}ForSequenceClassification"])
    base, source = base_of(hub_checkpoint, of_base, tmp_path, **changes)
    theirs = adapted(architecture, "lora", source, None, None)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    expected = outputs_of(theirs, architecture)
    for name in ("theirs", "hub"):
        zoo("convert", tmp_path / name, "--base", base, "-o", tmp_path / f"from-{name}")
        ours = resolve_checkpoint(str(tmp_path / f"from-{name}"))
        assert ours.head_name == head
        for one, other in zip(outputs_of(load_model(ours), architecture), expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        if name == "theirs":
            zoo("convert", tmp_path / "from-theirs", "--to", "hub", "-o", tmp_path / "hub")
