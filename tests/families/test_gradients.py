"""Gradients of encoder-decoders and decoders in float64, next to the reference library's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.nn import functional as F

from tests.families import parity, test_m2m100, test_marian, test_opt, test_pegasus, test_t5
from zoo.conformance.hf_reference import hub_state, keep_float64, reference_model
from zoo.families.base import Family
from zoo.families.random_inputs import random_inputs

SPLIT = {"share_encoder_decoder_embeddings": False}
CASES: dict[str, tuple[Family, Any]] = {
    "marian": (test_marian.FAMILY, test_marian.SMALL),
    "marian-two-vocabularies": (test_marian.FAMILY, replace(test_marian.SMALL, **SPLIT)),
    "pegasus": (test_pegasus.FAMILY, test_pegasus.SMALL),
    "m2m100": (test_m2m100.FAMILY, test_m2m100.SMALL),
    "umt5": (test_t5.FAMILY, replace(test_t5.SMALL, series="umt5")),
    "opt": (test_opt.FAMILY, test_opt.SMALL),
    "xglm": (test_opt.FAMILY, replace(test_opt.SMALL, **test_opt.XGLM)),
}


def mean_loss(model: Callable[..., Any], inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the cross-entropy of each token given those before it, in tokens of no padding."""
    logits: torch.Tensor = model(**inputs)["logits"]
    tokens = inputs.get("decoder_input_ids", inputs["input_ids"])
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_the_reference(name: str) -> None:
    """Except for the row of padding, which the reference does not train by what it reads."""
    family, config = CASES[name]
    head = "causal-lm" if family.name == "opt" else "seq2seq-lm"
    model = parity.random_model(family, config, head)
    reference = reference_model(family, config, head, model.state_dict())
    inputs = random_inputs(family.onnx(config, head), config, (9, 9, 9))
    for part in (model, reference):
        with keep_float64():  # the reference's OPT has a softmax in float32
            torch.autograd.backward(mean_loss(part, inputs))
    ours = {}
    for key, tensor in model.state_dict(keep_vars=True).items():
        is_trained = tensor.grad is not None
        ours[key] = tensor.grad if is_trained else torch.zeros_like(tensor, requires_grad=False)
    hub = hub_state(family.weights(config, head), ours)
    compared = 0
    for key, parameter in reference.named_parameters():
        if parameter.grad is None:
            continue
        difference = (hub[key] - parameter.grad).abs()
        if difference.dim() == 2 and len(difference) == config.vocab_size:
            difference[config.pad_token_id] = 0
        assert difference.max() <= 1e-9, key
        compared += int(parameter.grad.abs().max() > 1e-6)
    assert compared > 20
