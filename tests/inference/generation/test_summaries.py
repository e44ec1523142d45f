"""Generation of BART equals the reference library's, with the rules that its checkpoints set."""

from typing import Any

import pytest
import torch
import transformers

from tests.inference.generation.conftest import prompts
from zoo.conformance.hf_reference import reference_model
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo_bart import Bart
from zoo_bart.config import BartConfig

FAMILY = Bart()
PAD, BOS, END = 1, 0, 59  # a token that ends some of the texts
SMALL = BartConfig(
    vocab_size=61,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=48,
    decoder_layers=2,
    decoder_attention_heads=2,
    decoder_ffn_dim=40,
    max_positions=64,
)
# of facebook/bart-large-cnn, with shorter texts
SUMMARY = {
    "forced_bos_token_id": BOS,
    "forced_eos_token_id": END,
    "no_repeat_ngram_size": 3,
    "num_beams": 4,
    "length_penalty": 2.0,
    "early_stopping": True,
    "min_length": 8,
    "max_length": 20,
}
SEARCHES: list[dict[str, Any]] = [
    {},
    {"forced_bos_token_id": BOS, "forced_eos_token_id": END},
    {"no_repeat_ngram_size": 2, "min_length": 6},
    {"num_beams": 3},
    {"num_beams": 4, "length_penalty": 0.5, "early_stopping": "never"},
    SUMMARY,
    {**SUMMARY, "decoder_start_token_id": 5, "early_stopping": False},
]


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """Return a model whose outputs vary, and the reference."""
    model: Any = FAMILY.model(SMALL, "seq2seq-lm").eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            scale = (
                0.3 if tensor.shape[0] == 1 or tensor.dim() == 1 else 1.5 * tensor.shape[-1] ** -0.5
            )
            tensor.copy_(torch.empty(tensor.shape).normal_(generator=generator) * scale)
            if name.endswith("norm.weight"):
                tensor.add_(1)
        model.embeddings.tokens.weight.mul_(0.5)  # tied embeddings would favour repetition
        for layer in model.decoder.layers:  # so that texts depend on their sources
            layer.cross.out.weight.mul_(16)
            layer.cross.q.weight.mul_(8)
            layer.attention.qkv.weight.mul_(2)
        model.decoder.layers[-1].ffn_norm.weight.mul_(2)
    reference: Any = reference_model(FAMILY, SMALL, "seq2seq-lm", model.state_dict())
    reference.generation_config.forced_eos_token_id = None  # the default of its configuration
    return model, reference


@pytest.mark.long
@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_a_hundred_texts_equal_the_references(
    models: tuple[Any, Any], options: dict[str, Any]
) -> None:
    model, reference = models
    inputs = pad(prompts(100, longest=30), side="right", pad_id=PAD, device="cpu")
    settings = {"max_new_tokens": 20, **options}
    if "max_length" in options:
        del settings["max_new_tokens"]
    start = options.get("decoder_start_token_id", SMALL.decoder_start_token_id)
    given = {**inputs, "decoder_input_ids": torch.full_like(inputs["input_ids"][:, :1], start)}
    ours = generate(model, given, GenerationConfig(**settings), eos_token_ids=[END])
    theirs = transformers.GenerationConfig(
        **{"decoder_start_token_id": start, **settings},
        eos_token_id=END,
        pad_token_id=PAD,
        do_sample=False,
    )
    rows = reference.generate(**inputs, generation_config=theirs)[:, 1:].tolist()
    expected = [row[: row.index(END) + 1] if END in row else row for row in rows]
    assert ours == expected
    assert len(set(map(tuple, ours))) > 30, "the model says too few different things"
    assert len(set(map(len, ours))) > 4, "some texts end, others are cut"
