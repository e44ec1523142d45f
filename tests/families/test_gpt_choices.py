"""GPT's multiple-choice head, compared with the reference library's double-head classes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from tests.exporting.making import export_onnx
from tests.families.parity import random_model
from tests.inference.making import make_checkpoint
from zoo.conformance.comparison import TensorDifference
from zoo.conformance.hf_reference import reference_model
from zoo.families.random_inputs import random_inputs
from zoo_gpt import Gpt
from zoo_gpt.config import SIZES, GptConfig

GPT = Gpt()
HEAD = "multiple-choice"
SMALL = GptConfig(
    vocab_size=101, hidden_size=48, num_layers=3, num_heads=4, max_positions=40, pad_token_id=7
)
CONFIGS = {
    "gpt2": SMALL,
    "gpt2-untied": replace(SMALL, tie_embeddings=False),
    "gpt": replace(SMALL, norm="post"),
    "gpt2-small": SIZES["small"],
    "gpt-base": SIZES["gpt"],
}


def reference_outputs(
    model: Any, inputs: dict[str, Tensor], positions: Tensor
) -> dict[str, Tensor]:
    """Run the reference, with the mask in the shape (batch * choices, tokens) that it requires."""
    mask = inputs["attention_mask"].flatten(0, 1)
    with torch.no_grad():
        outputs = model(inputs["input_ids"], attention_mask=mask, mc_token_ids=positions)
    return {name: outputs[name] for name in ("logits", "mc_logits")}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(name, marks=pytest.mark.long if config.hidden_size > 256 else [])
        for name, config in CONFIGS.items()
    ],
)
def test_outputs_equal_the_reference(size: str) -> None:
    config = CONFIGS[size]
    model = random_model(GPT, config, HEAD)
    reference = reference_model(GPT, config, HEAD, model.state_dict())
    inputs = random_inputs(GPT.onnx(config, HEAD), config, (9, 4, 1))
    last = inputs["attention_mask"].sum(-1) - 1  # (batch, choices)
    for dtype in (torch.float64, torch.float32):
        model, reference = model.to(dtype), reference.to(dtype)
        for positions, options in ((last, {}), (last // 2, {"mc_token_ids": last // 2})):
            with torch.no_grad():
                ours = model(**inputs, **options)
            theirs = reference_outputs(reference, inputs, positions)
            assert list(ours) == list(theirs)
            for name, expected in theirs.items():
                gap = TensorDifference.between(ours[name], expected)
                exact = dtype is torch.float64
                assert (gap.absolute <= 1e-9) if exact else (gap.relative <= 1e-5), name


def test_last_token_with_left_padding_right_padding_and_no_mask() -> None:
    model = random_model(GPT, SMALL, HEAD)
    inputs = random_inputs(GPT.onnx(SMALL, HEAD), SMALL, (9,))
    with torch.no_grad():
        expected = model(**inputs)["mc_logits"]
        for sides in ((5, 0), (0, 5)):
            ids = torch.nn.functional.pad(inputs["input_ids"], sides, value=SMALL.pad_token_id)
            mask = torch.nn.functional.pad(inputs["attention_mask"], sides)
            logits = model(ids, mask)["mc_logits"]
            assert (logits - expected).abs().max() <= 1e-12
        assert (model(inputs["input_ids"])["mc_logits"] - expected).abs().max() <= 1e-12


@pytest.mark.long
def test_the_graph_passes_the_gate(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", HEAD, family=GPT, num_layers=1)
    report = export_onnx(checkpoint, tmp_path / "graph")
    assert report.validated and report.argmax_agreement == 1
    assert not report.cache and list(report.graphs["onnx/model.onnx"].outputs) == [
        "logits",
        "mc_logits",
    ]


def test_the_dropout_before_a_choice_is_kept() -> None:
    for model_type in GPT.model_types:
        translated = GPT.from_hub({"model_type": model_type, "summary_first_dropout": 0.3})
        assert isinstance(translated.config, GptConfig) and translated.config.choice_dropout == 0.3
        assert GPT.to_hub(translated.config, translated.extra)["summary_first_dropout"] == 0.3
