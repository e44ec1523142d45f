"""Inputs do not train the vector of the padding token of encoder-decoders, as in transformers."""

from typing import Any

import pytest
import torch

from tests.families import parity
from zoo.conformance.hf_reference import reference_model
from zoo.plugins import get_family

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_layers": 2,
    "num_heads": 4,
    "intermediate_size": 40,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 40,
    "max_positions": 32,
    "pad_token_id": 3,
    "eos_token_id": 5,
}


@pytest.mark.by_default("bart-tied-starts with padding", "marian-untied-another start")
@pytest.mark.parametrize("start", [3, 7], ids=["starts with padding", "another start"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", ["bart", "marian", "pegasus"])
def test_the_row_of_padding_has_the_reference_s_gradient(name: str, tied: bool, start: int) -> None:
    family = get_family(name)
    fields = {**SIZES, "tie_embeddings": tied, "decoder_start_token_id": start}
    config: Any = family.config_type(**fields)
    model = parity.random_model(family, config, "seq2seq-lm")
    reference: Any = reference_model(family, config, "seq2seq-lm", model.state_dict())
    ids = torch.tensor([[8, 3, 9, 3, 5], [10, 11, 3, 12, 5]])
    targets = torch.tensor([[7, 3, 13, 14], [7, 15, 3, 3]])
    attended = torch.ones_like(ids)  # Padding is read as well, so that its vector matters.
    logits = model(input_ids=ids, attention_mask=attended, decoder_input_ids=targets)["logits"]
    expected = reference(input_ids=ids, attention_mask=attended, decoder_input_ids=targets).logits
    assert (logits - expected).abs().max() <= 1e-9
    torch.autograd.backward([logits.square().mean(), expected.square().mean()])
    gradients = {}
    for source, parameter in reference.named_parameters(remove_duplicate=False):
        gradients[source] = parameter.grad
    tables = 0
    for entry in family.weights(config, "seq2seq-lm").entries():
        if not entry.target.endswith("embeddings.tokens.weight"):
            continue
        (source,) = entry.sources
        gradient = model.get_parameter(entry.target).grad
        assert gradient is not None
        assert (gradient - gradients[source]).abs().max() <= 1e-9, source
        # Tied output embeddings train the row as well.
        assert bool(gradient[3].any()) == tied
        tables += 1
    assert tables
