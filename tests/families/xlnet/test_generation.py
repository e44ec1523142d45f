"""Generation, compared with ``generate`` of the reference library."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from zoo.checkpoint.generation_config import GenerationConfig
from zoo.conformance.hf_reference import reference_model
from zoo.families.random_inputs import randomize_weights
from zoo.inference.generation.decoder import SessionDecoder, pad
from zoo.inference.generation.generate import generate
from zoo_xlnet import XLNet
from zoo_xlnet.config import SIZES

CONFIG = replace(
    SIZES["tiny"], vocab_size=40, hidden_size=48, intermediate_size=40, mem_len=None, dropout=0.0
)
END = 2
NEW = 12
PROMPTS = [[11], [7, 30, 8, 12, 9], [20, 21, 22, 7, 8, 9, 31, 33]]


def models(dtype: torch.dtype = torch.float32, **changes: Any) -> tuple[Any, Any]:
    """Return our language model and the reference's with the same weights.

    Args:
        dtype: dtype of both; the reference makes its masks in float32.
        **changes: settings of both.
    """
    family = XLNet()
    config = replace(CONFIG, **changes)
    model: Any = family.model(config, "masked-lm").to(dtype).eval()
    randomize_weights(model, seed=3)
    with torch.no_grad():
        model.embeddings.tokens.weight *= 4  # so that the next token depends on all before it
        model.head.bias[config.mask_token_id] = -100.0  # a place for the plugin, there a word
    return model, reference_model(family, config, "masked-lm", model.state_dict())


def reference_tokens(reference: Any, prompt: list[int], **options: Any) -> list[int]:
    """Return what the reference generates after one prompt, as it knows no padding."""
    settings: dict[str, Any] = {"max_new_tokens": NEW, "eos_token_id": END, "do_sample": False}
    ids = reference.generate(torch.tensor([prompt]), **{**settings, **options})
    return ids[0, len(prompt) :].tolist()  # type: ignore[no-any-return]


@pytest.mark.by_default("no memory-1", "memory-3")
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"use_mems": False},
        {"use_mems": True},
        {"use_mems": True, "mem_len": 6},
        {"use_mems": True, "clamp_len": 4, "mem_len": 9},
    ],
    ids=["no memory", "memory", "short memory", "clamped"],
)
def test_tokens_are_those_of_the_reference(changes: dict[str, Any], beams: int) -> None:
    """Prompts of a padded batch go on as each does alone."""
    model, reference = models(**changes)
    expected = [reference_tokens(reference, prompt, num_beams=beams) for prompt in PROMPTS]
    assert isinstance(model, SessionDecoder)
    settings = GenerationConfig(max_new_tokens=NEW, num_beams=beams)
    inputs = pad(PROMPTS, side="left", pad_id=5, device="cpu")
    assert generate(model, inputs, settings, eos_token_ids=(END,)) == expected
    assert len({token for row in expected for token in row}) > 4, "the rows depend on their texts"


def test_the_default_is_that_of_the_reference() -> None:
    """A memory is kept, and changes what is generated."""
    assert SIZES["base"].use_mems
    _, reference = models()
    prompt = PROMPTS[1]
    default = reference_tokens(reference, prompt)
    assert default == reference_tokens(reference, prompt, use_mems=True)
    assert default != reference_tokens(reference, prompt, use_mems=False)


@pytest.mark.parametrize("use_mems", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_logits_of_each_step_equal_the_reference(
    dtype: torch.dtype, bound: float, use_mems: bool
) -> None:
    """Relative to their largest magnitude."""
    model, reference = models(dtype, use_mems=use_mems)
    encodings = reference.transformer.relative_positional_encoding
    reference.transformer.relative_positional_encoding = lambda *args, **options: encodings(
        *args, **options
    ).to(dtype)
    ids = torch.tensor([PROMPTS[2], PROMPTS[2][::-1]])
    memory = None
    with torch.no_grad():
        ours, state = model.prefill({"input_ids": ids}, NEW)
        for token in (9, 17, 4, 30):
            theirs = reference_step(reference, ids, memory, dtype)
            memory = theirs.mems
            expected = theirs.logits[:, -1]
            assert float((ours - expected).abs().max()) <= bound * float(expected.abs().max())
            tokens = torch.tensor([token, token + 1])
            ids = torch.cat((ids, tokens[:, None]), dim=1)
            ours = model.step(tokens, state)


def reference_step(reference: Any, ids: Tensor, memory: Any, dtype: torch.dtype) -> Any:
    """Run a step of the reference, with its masks in a dtype."""
    inputs = reference.prepare_inputs_for_generation(ids, past_key_values=memory)
    floats = {
        name: value.to(dtype)
        for name, value in inputs.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    return reference(**{**inputs, **floats})
