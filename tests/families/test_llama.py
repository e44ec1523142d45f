"""Llama and the decoders of its kind: equality with the reference library on random weights."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import transformers
from _pytest.mark import ParameterSet
from msgspec.structs import replace
from torch import Tensor

from tests.families import parity
from tests.families.reference import SMALL_SIZES
from zoo.conformance.family_checks import FamilyChecks
from zoo.conformance.hf_reference import hub_state, keep_float64, reference_model
from zoo.conformance.kit import run_check
from zoo.errors import UsageError, VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.objectives.losses.predictions import cross_entropy_sum
from zoo.testing.conformance import FamilyTests
from zoo_llama import Llama
from zoo_llama.config import MODEL_TYPES, SIZES, LlamaConfig

LLAMA = Llama()
SMALL = LlamaConfig(**{**SMALL_SIZES, "max_positions": 96}, num_kv_heads=2, pad_token_id=3)
QWEN: dict[str, Any] = {"use_sliding_window": False, "max_window_layers": 1, "sliding_window": 7}
GEMMA: dict[str, Any] = {
    "num_kv_heads": 1,
    "head_dim": 10,
    "activation": "gelu_pytorch_tanh",
    "sliding_window": 7,
    "query_pre_attn_scalar": 24,
    "tie_embeddings": True,
}
WAVELENGTHS: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_factor": 8.0,
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
    "rope_original_max_positions": 64,
}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_factor": 3.0,
    "rope_original_max_positions": 32,
}
# Name -> a configuration of each model type, and of each branch that they have.
CONFIGS: dict[str, LlamaConfig] = {
    "llama": SMALL,
    "llama-biases": replace(
        SMALL,
        num_kv_heads=4,
        attention_bias=True,
        mlp_bias=True,
        tie_embeddings=True,
        layer_norm_eps=0.1,
    ),
    "llama-as-many-heads": replace(SMALL, num_kv_heads=None),
    "qwen2-as-many-heads": replace(SMALL, model_type="qwen2", num_kv_heads=None, **QWEN),
    "llama-wide-heads": replace(SMALL, head_dim=20, rope_theta=500.0, activation="gelu"),
    "llama-linear": replace(SMALL, rope_type="linear", rope_factor=3.0),
    "llama-wavelengths": replace(SMALL, **WAVELENGTHS),
    "mistral": replace(SMALL, model_type="mistral", sliding_window=7),
    "mistral-global": replace(SMALL, model_type="mistral", tie_embeddings=True),
    "qwen2": replace(SMALL, model_type="qwen2", **QWEN),
    "qwen2-local": replace(SMALL, model_type="qwen2", **{**QWEN, "use_sliding_window": True}),
    "qwen2-yarn": replace(SMALL, model_type="qwen2", **QWEN, **YARN),
    "qwen3": replace(SMALL, model_type="qwen3", head_dim=16, tie_embeddings=True, **QWEN),
    "qwen3-biases": replace(
        SMALL,
        model_type="qwen3",
        head_dim=12,
        attention_bias=True,
        **{**QWEN, "use_sliding_window": True},
        **YARN,
        rope_beta_fast=4.0,
        rope_beta_slow=0.5,
        rope_attention_factor=1.3,
    ),
    "smollm3": replace(
        SMALL, model_type="smollm3", no_rope_layer_interval=2, use_sliding_window=False
    ),
    "smollm3-local": replace(
        SMALL,
        model_type="smollm3",
        no_rope_layer_interval=2,
        sliding_window=7,
        attention_bias=True,
        mlp_bias=True,
        tie_embeddings=True,
    ),
    "olmo2": replace(SMALL, model_type="olmo2"),
    "olmo2-biases": replace(
        SMALL, model_type="olmo2", attention_bias=True, num_kv_heads=4, tie_embeddings=True
    ),
    "gemma2": replace(
        SMALL,
        model_type="gemma2",
        **GEMMA,
        sliding_window_pattern=2,
        attn_logit_softcapping=0.7,
        final_logit_softcapping=20.0,
    ),
    "gemma2-unbounded": replace(
        SMALL,
        model_type="gemma2",
        **{**GEMMA, "tie_embeddings": False},
        sliding_window_pattern=3,
        attention_bias=True,
    ),
    "gemma3": replace(
        SMALL,
        model_type="gemma3_text",
        **GEMMA,
        sliding_window_pattern=3,
        rope_theta=9000.0,
        local_rope_theta=90.0,
        final_logit_softcapping=20.0,
    ),
    "gemma3-linear": replace(
        SMALL,
        model_type="gemma3_text",
        **{**GEMMA, "tie_embeddings": False},
        sliding_window_pattern=2,
        attention_bias=True,
        rope_type="linear",
        rope_factor=8.0,
        local_rope_theta=100.0,
    ),
    "gemma3-bidirectional": replace(
        SMALL,
        model_type="gemma3_text",
        **{**GEMMA, "sliding_window": 8},
        sliding_window_pattern=2,
        local_rope_theta=100.0,
        bidirectional=True,
    ),
}


# The first configuration of each model type.
BY_TYPE: dict[str, LlamaConfig] = {}
for _config in CONFIGS.values():
    BY_TYPE.setdefault(_config.model_type, _config)
HEADS = [
    (model_type, head)
    for model_type, config in BY_TYPE.items()
    for head in LLAMA.heads()
    if LLAMA.has_reference(config, head)
]


def first_of_type(names: Iterable[str]) -> list[ParameterSet]:
    """Return cases of which the default run has the first one of each model type."""
    parameters = []
    for name in names:
        marks = () if CONFIGS[name] in BY_TYPE.values() else (pytest.mark.long,)
        parameters.append(pytest.param(name, marks=marks))
    return parameters


class TestLlama(FamilyTests):
    """The kit, on the size ``tiny``."""

    family = LLAMA
    golden = Path(__file__).parents[1] / "golden" / "llama"


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_hidden_states_equal_the_reference(name: str) -> None:
    """To 1e-9 in float64 and 1e-5 in float32, in rows that are longer than a window."""
    head = "none" if CONFIGS[name].bidirectional else "causal-lm"
    inputs = random_inputs(LLAMA.onnx(CONFIGS[name], head), CONFIGS[name], (40, 25, 2))
    parity.assert_equal(LLAMA, CONFIGS[name], head, inputs=inputs)


@pytest.mark.by_default("llama")  # the heads of all types are the same modules
@pytest.mark.parametrize(("model_type", "head"), HEADS)
def test_every_head_equals_the_reference(model_type: str, head: str) -> None:
    parity.assert_equal(LLAMA, BY_TYPE[model_type], head)


def scalar(outputs: Any, weights: Tensor) -> Tensor:
    """Return a number that depends on every logit."""
    total: Tensor = (outputs["logits"] * weights).sum()
    return total


@pytest.mark.parametrize("name", first_of_type(CONFIGS))
def test_gradients_equal_the_reference(name: str) -> None:
    """Of every parameter, in float64; also those of the bound of the logits."""
    config = replace(CONFIGS[name], pad_token_id=None)  # The reference's has no gradient.
    head = "sequence-classification" if config.bidirectional else "causal-lm"
    model = parity.random_model(LLAMA, config, head)
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    reference = reference_model(LLAMA, config, head, state)
    inputs = random_inputs(LLAMA.onnx(config, head), config, (20,))
    ours = model(**inputs)
    shape = ours["logits"].shape
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    scalar(ours, weights).backward()  # type: ignore[no-untyped-call]
    with keep_float64():
        scalar(reference(**inputs), weights).backward()  # type: ignore[no-untyped-call]
    gradients = {}
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        gradients[key] = parameter.grad
    expected = dict(reference.named_parameters())
    compared = hub_state(LLAMA.weights(config, head), gradients)
    assert compared.keys() == expected.keys()
    for key, gradient in compared.items():
        right = expected[key].grad
        assert right is not None
        assert (gradient - right).abs().max() <= 1e-9 * max(1.0, float(right.abs().max())), key


@pytest.mark.by_default("llama", "gemma2")
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_two_steps_of_training_equal_a_plain_loop(model_type: str) -> None:
    """The loss of the next token, and AdamW, in float64."""
    config = replace(BY_TYPE[model_type], pad_token_id=None)
    model: Any = parity.random_model(LLAMA, config, "causal-lm")
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    reference: Any = reference_model(LLAMA, config, "causal-lm", state)
    settings: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.1, "betas": (0.9, 0.95)}
    ours = torch.optim.AdamW(model.parameters(), **settings)
    theirs = torch.optim.AdamW(reference.parameters(), **settings)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        ids = torch.randint(0, config.vocab_size, (2, 12), generator=generator)
        hidden = model.encode(ids)[:, :-1].flatten(0, 1)
        sums = cross_entropy_sum(model.project(hidden), ids[:, 1:].flatten(), "loss").sums
        loss = sums["loss"] / hidden.shape[0]
        with keep_float64():
            logits = reference(input_ids=ids).logits[:, :-1].flatten(0, 1)
        plain = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
        assert abs(float(loss) - float(plain)) <= 1e-9 * float(plain)
        loss.backward()
        plain.backward()  # type: ignore[no-untyped-call]
        for optimizer in (ours, theirs):
            optimizer.step()
            optimizer.zero_grad()
    trained = hub_state(LLAMA.weights(config, "causal-lm"), model.state_dict())
    expected = dict(reference.named_parameters())
    for key, tensor in trained.items():
        # The first steps of Adam are the signs of gradients, which round to 0 at random.
        close = (tensor - expected[key]).abs() <= 1e-9
        assert close.double().mean() > 0.999, key


def computed(config: Any) -> LlamaConfig:
    """Return a configuration with the numbers that the reference derives from others."""
    assert isinstance(config, LlamaConfig)
    changes: dict[str, Any] = {"head_dim": config.head_size, "num_kv_heads": config.kv_heads}
    if not config.use_sliding_window:
        changes["sliding_window"] = None
    return replace(config, **changes)


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_come_back(name: str) -> None:
    """Through the keys of the Hub, which transformers reads and writes."""
    config = CONFIGS[name]
    translated = LLAMA.from_hub(LLAMA.to_hub(config))
    assert translated.config == config and translated.unknown == ()
    kind: Any = getattr(transformers, LLAMA.architecture(config, "none"))
    theirs = LLAMA.from_hub(kind.config_class(**LLAMA.to_hub(config)).to_dict())
    assert computed(theirs.config) == computed(config)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_defaults_of_the_reference_are_known(model_type: str) -> None:
    """A file with no keys but its model type is the reference's default configuration."""
    names: dict[str, str] = dict(zip(MODEL_TYPES, LLAMA.heads()["none"].architectures, strict=True))
    kind: Any = getattr(transformers, names[model_type])
    labels = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}
    explicit = LLAMA.from_hub({**kind.config_class().to_dict(), **labels})
    silent = LLAMA.from_hub({"model_type": model_type})
    assert explicit.unknown == ()
    assert computed(explicit.config) == computed(silent.config)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "rope_type = 'longrope'"),
    ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "rope_type = 'longrope'"),
    ({"rope_parameters": {"rope_type": "linear"}}, "needs a rope_factor"),
    ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
    ({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}}, "contradicts"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ({"num_local_experts": 8}, "num_local_experts"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"hidden_act": "prelu"}, "hidden_act"),
    ({"hidden_size": 100, "num_attention_heads": 8}, "num_heads 8"),
    ({"num_key_value_heads": 5}, "num_kv_heads 5"),
    ({"head_dim": 5}, "head_dim 5 is not even"),
    ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 32}, "layer_types"),
    ({"model_type": "qwen2", "use_mrope": True}, "use_mrope"),
    ({"model_type": "smollm3", "no_rope_layers": [1] * 36}, "no_rope_layers"),
    ({"model_type": "mistral", "layer_types": ["full_attention"] * 32}, "layer_types"),
    ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional"),
    ({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ({"model_type": "gemma3_text", "vision_config": {"a": 1}}, "vision_config"),
    (
        {
            "model_type": "gemma3_text",
            "rope_parameters": {"sliding_attention": {"rope_type": "yarn"}},
        },
        "sliding_attention.rope_type",
    ),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED, ids=[str(keys) for keys, _ in REFUSED])
def test_what_is_not_computed_is_refused_by_its_key(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        LLAMA.from_hub({"model_type": "llama", **keys})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sliding_window": 8}, "sliding_window is 8, and llama has no such setting"),
        ({"model_type": "gemma2"}, "gemma2 needs head_dim, query_pre_attn_scalar, sliding_window"),
        ({"model_type": "mistral", "num_kv_heads": None}, "mistral needs num_kv_heads"),
        ({"model_type": "qwen3"}, "qwen3 needs head_dim"),
        ({"model_type": "olmo2", "mlp_bias": True}, "olmo2 has no such setting"),
        ({"model_type": "qwen3", "bidirectional": True}, "qwen3 has no such setting"),
    ],
    ids=str,
)
def test_settings_of_other_model_types_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


def test_a_pattern_follows_from_the_types_of_layers() -> None:
    """Versions of the reference from 4.53 on write the list, and not the number."""
    layers = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    keys = {"model_type": "gemma3_text", "num_hidden_layers": 6, "layer_types": layers}
    config: Any = LLAMA.from_hub(keys).config
    assert config.sliding_window_pattern == 3 and config.layer_types == layers


def test_old_and_new_spellings_of_the_rotation_are_one() -> None:
    keys = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    keys |= {"original_max_position_embeddings": 64}
    old = {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **keys}}
    new = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **keys}}
    configs = [
        LLAMA.from_hub({"model_type": "llama", **spelling}).config for spelling in (old, new)
    ]
    assert configs[0] == configs[1] and configs[0] != LLAMA.from_hub({}).config


@pytest.mark.by_default("llama", "qwen3", "gemma3_text")
@pytest.mark.parametrize(
    ("model_type", "head"),
    [
        pytest.param(t, h, marks=() if h == "causal-lm" else pytest.mark.long)
        for t, h in HEADS
        if t != "gemma3_text" or h != "token-classification"
    ],
)
def test_conversion_there_and_back_keeps_every_bit(
    model_type: str, head: str, tmp_path: Path
) -> None:
    parity.assert_there_and_back(LLAMA, BY_TYPE[model_type], head, tmp_path, "bfloat16")


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGS)
def test_conversion_of_every_configuration(name: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(LLAMA, CONFIGS[name], "none", tmp_path)


GENERATING = [name for name, config in CONFIGS.items() if not config.bidirectional]


@pytest.mark.by_default("llama", "gemma3", "qwen3")
@pytest.mark.parametrize("name", first_of_type(GENERATING))
def test_generation_equals_the_reference(name: str) -> None:
    """The search goes beyond the window."""
    parity.assert_generation_equals_the_reference(LLAMA, CONFIGS[name])


class Checks(FamilyChecks):
    """The checks of a model type."""

    family: ClassVar[Any] = LLAMA

    def __init__(self, config: LlamaConfig) -> None:
        self._config = config

    @property
    def config(self) -> LlamaConfig:
        """A small configuration of the model type."""
        return self._config


def fault(config: LlamaConfig, check: str, **arguments: Any) -> str:
    """Return what a check of the kit finds; empty for nothing."""
    try:
        run_check(Checks(config), check, arguments)
    except VerificationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", first_of_type(name for name in CONFIGS if name != "llama"))
@pytest.mark.parametrize(
    "check",
    [
        *("padding", "packed_rows", "bfloat16", "cached_decoding"),
        pytest.param("row_of_padding", marks=pytest.mark.long),
        pytest.param("initialization", marks=pytest.mark.long),
        pytest.param("default_inputs", marks=pytest.mark.long),
        pytest.param("dropout", marks=pytest.mark.long),
        pytest.param("reference_initialization", marks=pytest.mark.long),
    ],
)
def test_checks_of_the_kit_find_no_fault(name: str, check: str) -> None:
    config = CONFIGS[name]
    head = "none" if config.bidirectional else "causal-lm"
    if config.bidirectional and check == "cached_decoding":
        pytest.skip("it generates nothing")
    assert fault(config, check, head=head) == ""


@pytest.mark.long
@pytest.mark.parametrize("name", GENERATING)
def test_the_gate_accepts_graphs_with_a_cache(name: str) -> None:
    """After two steps of pretraining."""
    assert fault(CONFIGS[name], "export") == ""


def test_scaled_embeddings_are_rounded_like_the_reference() -> None:
    """The factor is rounded first: the root of 48, 6.9282, is 6.9375 in bfloat16."""
    config = CONFIGS["gemma3"]
    model: Any = parity.random_model(LLAMA, config, "none").bfloat16()
    reference: Any = reference_model(LLAMA, config, "none", model.double().state_dict()).bfloat16()
    ids = torch.arange(20)[None]
    with torch.no_grad():
        expected = reference(ids, output_hidden_states=True).hidden_states[0]
        assert torch.equal(model.bfloat16().embeddings(ids), expected)
        table = model.embeddings.tokens.weight[:20]
        assert torch.equal(expected[0], table * torch.tensor(6.9375, dtype=torch.bfloat16))


def test_a_bidirectional_model_predicts_no_tokens() -> None:
    with pytest.raises(UsageError, match="attends to the tokens that the head causal-lm predicts"):
        LLAMA.model(CONFIGS["gemma3-bidirectional"], "causal-lm")


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("smollm2-135m", 134_515_008),
        ("tinyllama-1.1b", 1_100_048_384),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("smollm3-3b", 3_075_098_624),
        ("olmo2-1b", 1_484_916_736),
        ("gemma3-270m", 268_098_176),
    ],
)
def test_sizes_have_the_published_number_of_parameters(size: str, count: int) -> None:
    """As the publishers' pages state them, with tied embeddings counted once."""
    assert parity.count(LLAMA, SIZES[size], "causal-lm") == count
