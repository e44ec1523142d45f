"""LED: the conformance kit, and equality with the reference library on random weights."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.families import parity
from tests.families.making import SEQ2SEQ_SHAPE
from zoo.conformance.hf_reference import keep_float64, reference_model
from zoo.errors import VerificationError
from zoo.testing.conformance import FamilyTests
from zoo_led import LED
from zoo_led.config import SIZES, LEDConfig

FAMILY = LED()
SMALL = LEDConfig(
    **{**SEQ2SEQ_SHAPE, "max_positions": 128},
    max_decoder_positions=40,
    attention_window=(8, 16, 4),
)


class TestLED(FamilyTests):
    family = FAMILY


@pytest.mark.parametrize("head", FAMILY.heads())
def test_small_models_equal_the_reference(head: str) -> None:
    parity.assert_equal(FAMILY, SMALL, head)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_embeddings": False},
        {"activation": "relu", "attention_window": 6},
        {"num_heads": 1, "decoder_attention_heads": 12, "attention_window": 64},
        {"decoder_start_token_id": 7, "pad_token_id": 5, "eos_token_id": 9},
    ],
    ids=str,
)
def test_settings_equal_the_reference(changes: dict[str, Any]) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **changes), "seq2seq-lm")


@pytest.mark.parametrize("choice", ["task", "none", "separators", (0, 9)], ids=str)
def test_lengths_up_to_many_windows_equal_the_reference(choice: Any) -> None:
    """Padded sources, with gradients of the global projections."""
    config = replace(SMALL, global_tokens=choice)
    model: Any = parity.random_model(FAMILY, config, "seq2seq-lm")
    reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
    weight = model.layers[0].attention.global_qkv.weight
    query = reference.led.encoder.layers[0].self_attn.longformer_self_attn.query_global.weight
    for length in (1, 7, 16, 17, 33, 128):
        draw = torch.Generator().manual_seed(length)
        input_ids = torch.randint(0, 101, (2, length), generator=draw)
        target = torch.randint(0, 101, (2, 9), generator=draw)
        mask = torch.ones(2, length, dtype=torch.int64)
        mask[1, length - length // 4 :] = 0
        global_mask = torch.zeros_like(mask)
        if choice in ("task", "separators", (0, 9)):
            global_mask[:, 0] = 1
        if choice == "separators":
            global_mask[input_ids == 2] = 1
        if choice == (0, 9) and length > 9:
            global_mask[:, 9] = 1
        with keep_float64():
            expected = reference(
                input_ids,
                attention_mask=mask,
                decoder_input_ids=target,
                global_attention_mask=global_mask,
            ).logits
        logits = model(input_ids, mask, decoder_input_ids=target)["logits"]
        assert (logits - expected).abs().max() <= 1e-9, length
        scale = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)
        if choice == "none":
            continue
        (gradient,) = torch.autograd.grad((logits * scale).sum(), weight)
        (expected_gradient,) = torch.autograd.grad((expected * scale).sum(), query)
        assert (gradient[:48] - expected_gradient).abs().max() <= 1e-9


def test_generated_tokens_equal_the_reference() -> None:
    from zoo.checkpoint.generation_config import GenerationConfig
    from zoo.inference.generation.generate import generate

    model: Any = parity.random_model(FAMILY, SMALL, "seq2seq-lm")
    reference: Any = reference_model(FAMILY, SMALL, "seq2seq-lm", model.state_dict())
    input_ids = torch.randint(3, 101, (2, 70), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    global_mask = torch.zeros_like(input_ids)
    global_mask[:, 0] = 1
    with keep_float64():
        expected = reference.generate(
            **inputs,
            global_attention_mask=global_mask,
            max_new_tokens=10,
            do_sample=False,
            eos_token_id=None,
            forced_eos_token_id=None,
            num_beams=1,
        )
    ours = generate(model, inputs, GenerationConfig(max_new_tokens=10), eos_token_ids=[])
    assert ours == expected[:, 1:].tolist()


def test_parameter_counts_are_derived_by_hand() -> None:
    """BART's 139,420,416 (base) with other positions and three more projections in each block."""
    positions = (16_384 - 1_026 + 1_024 - 1_026) * 768
    projections = 6 * 3 * (768 * 768 + 768)
    expected = 139_420_416 + positions + projections
    assert FAMILY.weights(SIZES["base"], "none").parameters() == expected


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention_window", 5, "attention_window is 5"),
        ("attention_window", [4, 4], "attention_window has 2 windows for 12 blocks"),
        ("attention_dilation", 2, "attention_dilation"),
        ("global_tokens", [20_000], "position 20000"),
        ("activation_function", "prelu", "activation_function"),
    ],
)
def test_settings_that_are_not_implemented_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        FAMILY.from_hub({"model_type": "led", key: value})


def test_defaults_are_those_of_the_reference() -> None:
    import transformers

    translated = FAMILY.from_hub(transformers.LEDConfig().to_dict())
    assert translated.unknown == ()
    assert translated.config == replace(LEDConfig(), labels=translated.config.labels)


@pytest.mark.parametrize("head", FAMILY.heads())
def test_hub_round_trip(head: str, tmp_path: Any) -> None:
    parity.assert_there_and_back(FAMILY, SMALL, head, tmp_path)
