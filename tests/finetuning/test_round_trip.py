"""Fine-tuned models of every family, opened by transformers and exported through the gate.

One step from random weights of the size ``tiny``, with a tokenizer that is trained on the texts:
what counts is that labels, head, tokens and logits arrive.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.exporting.making import export_onnx
from tests.families.every import every_family, families_with
from tests.finetuning.making import finetune, settings
from tests.finetuning.tables import CLASSIFICATION, STEP, data
from zoo.api import Model, load
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.plugins import get_family

TEXTS = ["a b c d e", "h i"]
FAMILIES = [
    name
    for name in families_with("sequence-classification")
    if get_family(name).has_reference(get_family(name).sizes()["tiny"], "sequence-classification")
]
OTHER_TASKS = {
    ("deberta", "token-classification"): "AutoModelForTokenClassification",
    ("roberta", "question-answering"): "AutoModelForQuestionAnswering",
    ("bert", "multiple-choice"): "AutoModelForMultipleChoice",
    ("albert", "sentence-embedding"): "AutoModel",
    ("gpt", "causal-lm"): "AutoModelForCausalLM",
    ("t5", "seq2seq"): "AutoModelForSeq2SeqLM",
}
TRANSFORMERS = ("bert", "modernbert", "t5")  # tests/families converts the blocks of the others
LONG = pytest.mark.long


def trained(folder: Path, family: str, task: str) -> Model:
    table, columns = data(task, folder)
    tree = settings(family, table, task=task, vocab_size=300, **STEP, data=columns)
    if task == "sentence-embedding":
        tree |= {"task_args": {"pooling": "mean"}}
    return load(finetune(folder / "run", tree | {"micro_batch_size": 4}) / "model", backend="cpu")


def batch_of(model: Model, tokenizer: Any) -> dict[str, torch.Tensor]:
    """Return one text as transformers' tokenizer encodes it, whose tokens are ours."""
    encoded = tokenizer(TEXTS[0])
    assert encoded["input_ids"] == model.tokenizer.encode(TEXTS[:1], max_tokens=None)[0].ids
    inputs = {
        name: torch.tensor([values])
        for name, values in encoded.items()
        if name in model.session.inputs
    }
    if "decoder_input_ids" in model.session.inputs:
        inputs["decoder_input_ids"] = torch.tensor([[0, 5, 6, 7]])
        inputs["decoder_attention_mask"] = torch.ones(1, 4, dtype=torch.int64)
    if model.checkpoint.head_name == "multiple-choice":
        inputs = {name: tensor[None].repeat(1, 2, 1) for name, tensor in inputs.items()}
        inputs["input_ids"][0, 1, 1] = 7
    return inputs


def assert_equal_outputs(model: Model, reference: Any, inputs: Mapping[str, torch.Tensor]) -> None:
    arrays = {
        name: tensor.numpy() for name, tensor in inputs.items() if name in model.session.inputs
    }
    results = model.session.run(arrays)
    with torch.no_grad():
        expected = reference.eval()(**inputs)
    assert results.keys() - {"pooler_output"} <= expected.keys()
    for name, values in results.items():
        np.testing.assert_allclose(values, expected[name].numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.by_default("bert-text-classification", "t5")
@pytest.mark.parametrize(
    ("family", "task", "kind"),
    [
        *(
            pytest.param(
                *family.values,
                CLASSIFICATION,
                "AutoModelForSequenceClassification",
                marks=family.marks,
            )
            for family in every_family(FAMILIES, default=TRANSFORMERS)
        ),
        *((*case, kind) for case, kind in OTHER_TASKS.items()),
    ],
    ids=lambda value: str(value).removeprefix("AutoModel"),
)
def test_transformers_opens_the_model(family: str, task: str, kind: str, tmp_path: Path) -> None:
    model = trained(tmp_path, family, task)
    source = CheckpointDir(model.checkpoint.path, "model")
    convert(source, tmp_path / "hub", to="hub")
    reference, info = getattr(transformers, kind).from_pretrained(
        tmp_path / "hub", output_loading_info=True
    )
    assert {name for name, tensors in info.items() if tensors} == set()
    if task.endswith("classification"):
        labels = model.checkpoint.config.labels
        assert tuple(reference.config.id2label.values()) == labels
        assert labels == (("no", "yes") if task == CLASSIFICATION else labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    assert_equal_outputs(model, reference, batch_of(model, tokenizer))


@LONG  # tests/exporting has the graphs of these families and heads
@pytest.mark.parametrize(
    ("family", "task"),
    [*((name, CLASSIFICATION) for name in [*FAMILIES, "elmo"]), *OTHER_TASKS],
)
def test_the_export_passes_its_gate(family: str, task: str, tmp_path: Path) -> None:
    model = trained(tmp_path, family, task)
    assert export_onnx(model.checkpoint, tmp_path / "onnx").validated
    if task == CLASSIFICATION:
        exported = load(tmp_path / "onnx", backend="onnx")
        for expected, answer in zip(model.classify(TEXTS), exported.classify(TEXTS), strict=True):
            assert answer["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_a_family_that_the_hub_has_no_class_for(tmp_path: Path) -> None:
    model = trained(tmp_path, "elmo", CLASSIFICATION)
    with pytest.raises(UsageError, match="no class for elmo with the head sequence-classification"):
        convert(CheckpointDir(model.checkpoint.path, "model"), tmp_path / "hub", to="hub")
