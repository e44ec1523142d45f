"""A decoder of shared keys and values, RMS norms and scaled rotations against transformers.

The family is as small as one of a plugin, and has no blocks and no attention of its own.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from msgspec.structs import replace
from torch import nn

from tests.families import parity
from tests.nn.making import SHAPE
from zoo.conformance.family_checks import FamilyChecks
from zoo.errors import VerificationError
from zoo.exporting.graph.attention import transpose_keys
from zoo.exporting.graph.fuse import fuse
from zoo.exporting.graph.opsets import DEFAULT_OPSET
from zoo.exporting.graph.parts import with_cache
from zoo.exporting.graph.trace import trace
from zoo.families.base import Head
from zoo.families.causal import CausalFamily, causal_heads
from zoo.families.config import Config, ConfigMap, same_names
from zoo.families.config.keys import COMMON
from zoo.families.onnx import LOGITS, PAST
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.nn.decoder import CausalLM, CausalModelFactory, make_causal_blocks
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.kv_cache import KeyValueCache
from zoo.nn.layers.norms import RMSNorm
from zoo.nn.positions import (
    LinearScaling,
    Rotary,
    WavelengthScaling,
)
from zoo.nn.transformer import GatedFeedForward, PreNormBlock, SelfAttention
from zoo.weights import Concat, Rule, WeightMap
from zoo.weights.head_rules import lm_head_rules

HEADS = ("none", "causal-lm", "sequence-classification")


class GroupedConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the decoder."""

    vocab_size: int = 61
    hidden_size: int = 48
    intermediate_size: int = 40
    num_layers: int = 2
    num_heads: int = 6
    num_kv_heads: int = 2
    max_positions: int = 512
    activation: str = "silu"
    layer_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    dropout: float = 0.0
    attention_dropout: float = 0.0
    pad_token_id: int | None = 0
    tie_embeddings: bool = False
    base: float = 10_000.0
    scaling: str = "default"
    factor: float | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_positions: int | None = None

    @property
    def frequency_scaling(self) -> Any:
        """The function of the frequencies, or ``None``."""
        factor = self.factor or 1
        if self.scaling == "linear":
            return LinearScaling(factor)
        low, high = self.low_freq_factor or 1, self.high_freq_factor or 1
        scaled = WavelengthScaling(factor, low, high, self.original_max_positions or 1)
        return scaled if self.scaling == "llama3" else None


SCALED = {
    "rope_parameters.factor": "factor",
    "rope_parameters.low_freq_factor": "low_freq_factor",
    "rope_parameters.high_freq_factor": "high_freq_factor",
    "rope_parameters.original_max_position_embeddings": "original_max_positions",
}


class GroupedFactory(CausalModelFactory):
    """The models with each head."""

    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        blocks = make_causal_blocks(
            config,
            attention_args={"bias": False},
            norm_type=RMSNorm,
            ffn_type=GatedFeedForward,
            bias=False,
        )
        size = config.hidden_size // config.num_heads
        return {
            "embeddings": make_embeddings(config, norm=False, positions=False),
            "layers": blocks,
            "final_norm": RMSNorm(config.hidden_size, config.layer_norm_eps),
            "rotary": Rotary(size, config.base, scaling=config.frequency_scaling),
            "pad_token_id": config.pad_token_id,
        }


def rules(config: GroupedConfig, head: str) -> WeightMap:
    """Return the rules of the weights."""
    width, inner, source, target = (
        config.hidden_size,
        config.intermediate_size,
        "model.layers.{i}.",
        "layers.{i}.",
    )
    shared = config.num_kv_heads * width // config.num_heads
    sizes = (width, shared, shared)
    projections = tuple(f"{source}self_attn.{name}_proj.weight" for name in "qkv")
    gate = tuple(f"{source}mlp.{name}_proj.weight" for name in ("gate", "up"))
    backbone = WeightMap(
        rules=[
            Rule(
                "model.embed_tokens.weight", "embeddings.tokens.weight", (config.vocab_size, width)
            ),
            Rule(
                projections,
                f"{target}attention.qkv.weight",
                (sum(sizes), width),
                Concat(3, sizes),
            ),
            Rule(
                f"{source}self_attn.o_proj.weight", f"{target}attention.out.weight", (width, width)
            ),
            Rule(f"{source}input_layernorm.weight", f"{target}attention_norm.weight", (width,)),
            Rule(gate, f"{target}ffn.up.weight", (2 * inner, width), Concat(2)),
            Rule(f"{source}mlp.down_proj.weight", f"{target}ffn.down.weight", (width, inner)),
            Rule(f"{source}post_attention_layernorm.weight", f"{target}ffn_norm.weight", (width,)),
            Rule("model.norm.weight", "final_norm.weight", (width,)),
        ],
        prefix="model.",
        counts={"i": config.num_layers},
    )
    if head == "causal-lm":
        return lm_head_rules(backbone, config, "model.embed_tokens.weight", tied=False)
    if head == "sequence-classification":
        return backbone.plus(Rule("score.weight", "head.weight", (len(config.labels), width)))
    return backbone


class Grouped(CausalFamily):
    """The family."""

    name: ClassVar[str] = "grouped"
    model_types: ClassVar[tuple[str, ...]] = ("llama",)
    config_type: ClassVar[type[Config]] = GroupedConfig
    config_map: ClassVar[ConfigMap] = ConfigMap(
        keys={
            **COMMON,
            **SCALED,
            **same_names("vocab_size", "intermediate_size", "attention_dropout"),
            **same_names("initializer_range", "pad_token_id"),
            "num_key_value_heads": "num_kv_heads",
            "hidden_act": "activation",
            "rms_norm_eps": "layer_norm_eps",
            "tie_word_embeddings": "tie_embeddings",
            "rope_parameters.rope_type": "scaling",
            "rope_parameters.rope_theta": "base",
        },
        unsaid=tuple(SCALED),
    )
    default_checkpoint: ClassVar[str] = "none"
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: head for name, head in causal_heads("Llama").items() if name in HEADS
    }

    def sizes(self) -> Mapping[str, Any]:
        """Return the size of the tests."""
        return {"tiny": GroupedConfig()}

    def model(self, config: Any, head: str) -> nn.Module:
        """Return a model."""
        return GroupedFactory(config).build(head)

    def weights(self, config: Any, head: str) -> WeightMap:
        """Return the rules."""
        return rules(config, head)


class Checks(FamilyChecks):
    """The checks of the family."""

    family = Grouped()


WAVELENGTHS: dict[str, Any] = {
    "scaling": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_positions": 64,
}


@pytest.mark.by_default(  # tests/families/test_llama.py has the other pairs
    "plain-sequence-classification", "one-linear-causal-lm", "all-wavelengths-none"
)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_kv_heads": 1, "scaling": "linear", "factor": 4.0},
        {"num_kv_heads": 6, "base": 500_000.0, **WAVELENGTHS},
        WAVELENGTHS,
    ],
    ids=["plain", "one-linear", "all-wavelengths", "wavelengths"],
)
def test_outputs_equal_those_of_transformers(head: str, changes: Mapping[str, Any]) -> None:
    """To 1e-9 in float64 and 1e-5 in float32, in rows longer than the original positions."""
    config = replace(GroupedConfig(), **changes)
    inputs = random_inputs(Checks.family.onnx(config, head), config, (90, 40, 3))
    parity.assert_equal(Checks.family, config, head, inputs=inputs)


@pytest.mark.by_default("published_tensors", "padding", "gradients", "cached_decoding")
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "check",
    [
        *("published_tensors", "tensor_round_trip", "padding", "packed_rows", "bfloat16"),
        *("gradients", "cached_decoding", "generation"),
    ],
)
def test_checks_of_the_kit_find_no_fault(head: str, check: str) -> None:
    try:
        getattr(Checks(), f"check_{check}")(head)
    except VerificationError as error:
        fault = str(error)
    else:
        fault = ""
    assert not fault


def test_frequencies_of_every_branch_are_those_of_transformers() -> None:
    """Short wavelengths stay, long ones are stretched, and those between are interpolated."""
    scaling = GroupedConfig(**WAVELENGTHS).frequency_scaling
    plain = 1.0 / 10_000.0 ** (torch.arange(0, 8, 2).float() / 8)
    ratios = (plain / scaling(plain, torch.arange(8)[None])).tolist()
    assert ratios[0] == 1 and 1 < ratios[1] < 8 and ratios[2:] == [8, 8]


@pytest.mark.long  # tests/exporting has graphs with a cache, and fused ones, of published families
def test_graphs_equal_torch(tmp_path: Path) -> None:
    """A graph with a cache of the shared heads, as it is traced and with fused operators."""
    checks = Checks()
    model: Any = checks.model("causal-lm", torch.float32).requires_grad_(False)
    inputs = checks.inputs("causal-lm", padding_side="left")
    (part,) = with_cache(model, checks.family.onnx(checks.config, "causal-lm"), inputs)
    graph = trace(part.module, part.example, part.spec, DEFAULT_OPSET).model
    past = [name for name in part.spec.inputs if name.startswith(PAST)]
    feeds = {name: np.asarray(t) for name, t in part.example.items() if name != PAST}
    feeds |= {name: t.numpy() for name, t in zip(past, part.example[PAST], strict=True)}
    expected = part.module(**part.example)[LOGITS].numpy()
    assert expected.shape == (3, 3, 61)
    for change in (lambda model: model, transpose_keys, fuse):
        graph = change(graph) or graph
        ir.save(graph, tmp_path / "graph.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "graph.onnx")
        (logits,) = session.run([LOGITS], feeds)
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()


def test_cache_has_the_shared_heads_alone() -> None:
    model: Any = Checks().model("causal-lm")
    cache = KeyValueCache(2)
    model.encode(torch.tensor([[3, 4, 5]]), cache=cache)
    assert cache.layers[0].keys.shape == (1, 2, 3, 8)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="4 heads of keys and values do not divide 6 heads"):
        SelfAttention(hidden_size=48, num_heads=6, dropout=0.0, num_kv_heads=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_root_mean_square_norm_equals_its_formula(dtype: torch.dtype) -> None:
    norm = RMSNorm(16, eps=0.1)
    randomize_weights(norm)
    x = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, norm = x.to(dtype), norm.to(dtype)
    exact = x.double()
    scaled = exact / (exact.square().mean(-1, keepdim=True) + 0.1).sqrt()
    difference = (norm(x).double() - norm.weight.double() * scaled).abs().max()
    assert norm(x).dtype is dtype and difference <= 4 * torch.finfo(dtype).eps


def test_blocks_that_share_weights_have_caches_of_their_own() -> None:
    attention = partial(make_self_attention, SHAPE, causal=True)
    layers = make_blocks(SHAPE, PreNormBlock, attention=lambda _: attention())
    embeddings = make_embeddings(SHAPE, norm=False)
    model: Any = CausalLM(embeddings, layers, order=(0, 1, 0)).double().eval()
    randomize_weights(model)
    ids = torch.tensor([[3, 4, 5, 6]])
    whole = model(ids)["logits"]
    twice: Any = CausalLM(model.embeddings, model.layers).double().eval()
    assert (whole - twice(ids)["logits"]).abs().max() > 1e-3
    with torch.no_grad():
        first, state = model.prefill({"input_ids": ids[:, :3]}, 1)
        after = model.step(ids[:, 3], state)
    assert len(state.cache.layers) == 3
    assert torch.allclose(torch.stack([first, after], 1), whole[:, 2:], atol=1e-12)
