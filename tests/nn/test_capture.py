"""``zoo.nn.capture``, compared with the hidden states and attentions of the reference library."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from tests.families import parity
from zoo.conformance.hf_reference import reference_model
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.random_inputs import random_inputs
from zoo.nn.capture import capture
from zoo.plugins.registry import get_family

ENCODERS = ("bert", "roberta", "distilbert", "electra", "albert", "deberta", "modernbert")


def small(name: str, **changes: Any) -> tuple[Family, Any]:
    family = get_family(name)
    return family, replace(family.sizes()["tiny"], vocab_size=120, **changes)


def random_pair(name: str, head: str, **changes: Any) -> tuple[nn.Module, Any, dict[str, Tensor]]:
    """Return a random float64 model, the reference with the same weights, and a batch."""
    family, config = small(name, **changes)
    model = parity.random_model(family, config, head)
    reference = reference_model(family, config, head, model.state_dict())
    lengths = (9, 5) if name not in ("gpt",) else (9,)  # GPT-2 has no padding id
    return model, reference, random_inputs(family.onnx(config, head), config, lengths)


def assert_close(
    tensor: Tensor, expected: Tensor, mask: Tensor | None = None, atol: float = 1e-9
) -> None:
    if mask is not None:  # attentions of padding queries are undefined
        rows = mask.bool()
        tensor, expected = tensor.transpose(1, 2)[rows], expected.transpose(1, 2)[rows]
    torch.testing.assert_close(tensor, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_match_the_reference(name: str) -> None:
    model, reference, inputs = random_pair(name, "none")
    # the reference partly computes in float32
    tolerance = 1e-6 if name in ("deberta", "modernbert") else 1e-9
    with torch.no_grad():
        expected = reference(**inputs, output_hidden_states=True, output_attentions=True)
        with capture(model, hidden="all", attention="all") as captured:
            model(**inputs)
    assert len(captured.hidden) == len(expected.hidden_states)
    assert len(captured.attention) == len(expected.attentions)
    for number, state in enumerate(expected.hidden_states):
        real = inputs["attention_mask"].bool()
        assert_close(captured.hidden[number][real], state[real], atol=tolerance)
    for number, probabilities in enumerate(expected.attentions):
        mask = inputs["attention_mask"]
        assert_close(captured.attention[number], probabilities, mask, tolerance)


def test_a_causal_model_matches_the_reference() -> None:
    model, reference, inputs = random_pair("gpt", "causal-lm")
    with torch.no_grad():
        expected = reference(**inputs, output_hidden_states=True, output_attentions=True)
        with capture(model, hidden=(0, 1, -1), attention=(0, -1)) as captured:
            model(**inputs)
    for number in (0, 1, -1):
        assert_close(captured.hidden[number], expected.hidden_states[number])
    for number in (0, -1):
        assert_close(captured.attention[number], expected.attentions[number])


def test_an_encoder_and_a_decoder_match_the_reference() -> None:
    model, reference, inputs = random_pair("t5", "seq2seq-lm")
    decoder = model.get_submodule("decoder")
    with (
        torch.no_grad(),
        capture(model, hidden="all", attention="all") as source,
        capture(decoder, hidden="all", attention="all", cross_attention="all") as target,
    ):
        model(**inputs)
        expected = reference(**inputs, output_hidden_states=True, output_attentions=True)
    pairs = [
        (source.hidden, expected.encoder_hidden_states),
        (source.attention, expected.encoder_attentions),
        (target.hidden, expected.decoder_hidden_states),
        (target.attention, expected.decoder_attentions),
        (target.cross_attention, expected.cross_attentions),
    ]
    for captured, tensors in pairs:
        assert len(captured) == len(tensors)
        for number, tensor in enumerate(tensors):
            assert_close(captured[number], tensor)


@pytest.mark.parametrize("name", ["bert", "deberta"])
def test_probabilities_are_the_softmax_of_the_scores_and_mix_the_values(name: str) -> None:
    model, _, inputs = random_pair(name, "none")
    layer: Any = model.get_submodule("layers.1")
    mixed: list[Tensor] = []
    handle = layer.attention.out.register_forward_pre_hook(lambda _, args: mixed.append(args[0]))
    names = {"attention": (1,), "attention_scores": (1,), "queries_keys_values": (1,)}
    with torch.inference_mode(), capture(model, **names) as captured:
        model(**inputs)
    handle.remove()
    assert_close(captured.attention_scores[1].softmax(-1), captured.attention[1])
    _, _, values = captured.queries_keys_values[1]
    joined = (captured.attention[1] @ values).transpose(1, 2).flatten(-2)
    assert_close(joined, mixed[0])


def test_gradients_flow_to_the_weights() -> None:
    model, _, inputs = random_pair("bert", "none")
    with capture(model, hidden=(1,), attention=(0,)) as captured:
        model(**inputs)
    (captured.hidden[1].pow(2).sum() + captured.attention[0].pow(2).sum()).backward()  # type: ignore[no-untyped-call]
    first, last = model.get_submodule("layers.0"), model.get_submodule("layers.1")
    first_weights = first.attention.qkv.named_parameters()  # type: ignore[union-attr]
    assert [name for name, weight in first_weights if weight.grad is None] == []
    assert [name for name, weight in last.named_parameters() if weight.grad is not None] == []


def test_nothing_is_hooked_where_nothing_is_asked_for() -> None:
    family, config = small("bert")
    model = parity.random_model(family, config, "none")
    with capture(model):
        hooked = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert hooked == []
    with capture(model, hidden=(0,), attention=(0,)):
        assert [module for module in model.modules() if module._forward_hooks]
    modules = model.named_modules()
    assert [name for name, m in modules if m._forward_hooks or m._forward_pre_hooks] == []


def test_the_latest_forward_pass_counts() -> None:
    family, config = small("albert")
    model = parity.random_model(family, config, "none")
    batches = [random_inputs(family.onnx(config, "none"), config, (n,)) for n in (7, 4)]
    with torch.no_grad(), capture(model, hidden="all", attention=(-1,)) as captured:
        for inputs in batches:
            output = model(**inputs)["last_hidden_state"]
        assert torch.equal(captured.hidden[config.num_layers], output)
        encode: Any = model.get_submodule("").encode
        hidden = encode(**batches[0])
        assert torch.equal(captured.hidden[config.num_layers], hidden), (
            "without the model's forward"
        )
    assert captured.attention[-1].shape[-1] == 7


def test_a_block_that_a_head_runs_again_is_counted_once() -> None:
    family, config = small("deberta")
    config = replace(config, position_biased_input=False)
    model = parity.random_model(family, config, "masked-lm")
    inputs = random_inputs(family.onnx(config, "masked-lm"), config, (6,))
    bare = family.model(config, "none").double().eval()
    state = model.state_dict()
    bare.load_state_dict({name: state[name] for name in bare.state_dict()})
    with torch.no_grad(), capture(model, hidden=(-1,)) as captured:
        model(**inputs)
        expected = bare(**inputs)["last_hidden_state"]
    assert_close(captured.hidden[-1], expected)


def test_what_cannot_be_captured_is_refused() -> None:
    family, config = small("bert")
    model = parity.random_model(family, config, "none")
    inputs = random_inputs(family.onnx(config, "none"), config, (3,))
    with pytest.raises(UsageError, match="no layer 7"), capture(model, hidden=(7,)):
        pass
    with pytest.raises(UsageError, match="layer 0 of the model computes no cross attention"):  # noqa: SIM117
        with capture(model, cross_attention=(0,)):
            model(**inputs)
    with capture(model, hidden=(0,)) as captured:
        pass
    with pytest.raises(KeyError, match="layer 0 was not captured"):
        captured.hidden[0]


def test_a_recurrent_model_has_hidden_states_and_no_attention() -> None:
    family = get_family("elmo")
    config = family.sizes()["tiny"]
    model = parity.random_model(family, config, "none")
    inputs = random_inputs(family.onnx(config, "none"), config, (4,))
    with torch.no_grad(), capture(model, hidden=(0, 1)) as captured:
        model(**inputs)
    assert captured.hidden[0].shape == captured.hidden[1].shape
    with pytest.raises(UsageError, match="computes no attention"):  # noqa: SIM117
        with capture(model, attention=(0,)):
            model(**inputs)
