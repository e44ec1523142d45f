"""Llama and the decoders of its kind: rotary positions, norms without mean, gated units.

Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", arXiv:2302.13971,
section 2.2. Queries and keys are rotated by their positions, heads of queries may share heads of
keys and values, norms have no mean, and feed-forward networks have a gate. In what the models
differ, is in ``zoo_llama.config``: where norms are, whether queries and keys are normalized, which
linear maps have biases, which blocks attend to a window of tokens or do not rotate, how rotations
are scaled, and which scores are bounded.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn

from zoo.errors import UsageError
from zoo.families.alternating import SLIDING
from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.decoder import CausalLM, CausalModelFactory, make_causal_blocks
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import make_embeddings
from zoo.nn.layers.norms import RMSNorm
from zoo.nn.positions import Rotary, WavelengthScaling, make_rotary
from zoo.nn.transformer import GatedFeedForward, PreNormBlock, select_tokens
from zoo.overrides import override
from zoo_llama.config import LlamaConfig


class LlamaBlock(PreNormBlock):
    """A block with norms before attention and feed-forward network, after them, or both.

    Args:
        attention: see ``PreNormBlock``.
        norm_before: whether their inputs are normalized.
        norm_after: whether their outputs are normalized before they are added.
        **options: see ``PreNormBlock``.
    """

    def __init__(
        self, attention: nn.Module, *, norm_before: bool, norm_after: bool, **options: Any
    ) -> None:
        super().__init__(attention, **options)
        self.attention_output_norm: nn.Module = nn.Identity()
        self.ffn_output_norm: nn.Module = nn.Identity()
        if norm_after:
            make_norm = partial(
                options["norm_type"], options["hidden_size"], eps=options["layer_norm_eps"]
            )
            self.attention_output_norm = make_norm()
            self.ffn_output_norm = make_norm()
        if not norm_before:
            self.attention_norm = nn.Identity()
            self.ffn_norm = nn.Identity()

    @override
    def forward(self, x: Tensor, *attention_args: Any, positions: Tensor | None = None) -> Tensor:
        attended = self.attention(self.attention_norm(x), *attention_args)
        x, attended = select_tokens(positions, x, attended)
        x = x + self.dropout(self.attention_output_norm(attended))
        transformed = self.ffn(self.ffn_norm(x))
        return x + self.dropout(self.ffn_output_norm(transformed))  # type: ignore[no-any-return]


class LlamaFactory(CausalModelFactory):
    """The default models of decoders, with the blocks that the configuration declares."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        architecture = config.architecture
        norm_type = partial(RMSNorm, offset=architecture.norm_offset)
        block_type = partial(
            LlamaBlock, norm_before=architecture.norm_before, norm_after=architecture.norm_after
        )
        qk_norm = None
        if architecture.qk_norm is not None:
            qk_norm = partial(norm_type, eps=config.layer_norm_eps)
        attention_args = {
            "causal": not config.bidirectional,
            "head_size": config.head_size,
            "scale": config.attention_scale,
            "cap": config.attn_logit_softcapping,
            "bias": config.attention_bias or architecture.qkv_bias,
            "out_bias": config.attention_bias,
            "qk_norm": qk_norm,
            "norms_heads": architecture.qk_norm == "heads",
        }
        blocks = make_causal_blocks(
            config,
            block_type,
            attention_args=attention_args,
            norm_type=norm_type,
            ffn_type=GatedFeedForward,
            bias=config.mlp_bias,
        )
        scale = config.hidden_size**0.5 if architecture.scaled_embeddings else 1.0
        return {
            "embeddings": make_embeddings(
                config, positions=False, norm=False, scale=scale, rounds_scale=True
            ),
            "layers": blocks,
            "final_norm": norm_type(config.hidden_size, config.layer_norm_eps),
            "rotary": make_llama_rotary(config),
            "pattern": make_pattern(config),
            "adds_bias": config.attn_logit_softcapping is not None,
            "causal": not config.bidirectional,
            "pad_token_id": config.pad_token_id,
        }


def make_pattern(config: LlamaConfig) -> AttentionPattern:
    """Return which blocks attend to a window of tokens, and which rotate queries and keys."""
    window = config.window
    if window is not None and config.bidirectional:
        window = window // 2  # On each side.
    local_rotary = None
    if config.local_rope_theta is not None:
        local_rotary = Rotary(config.head_size, config.local_rope_theta)
    return AttentionPattern(
        [layer_type == SLIDING for layer_type in config.layer_types],
        window,
        causal=not config.bidirectional,
        rotary=local_rotary,
        rotates=[rotates == 1 for rotates in config.no_rope_layers],
    )


def make_llama_rotary(config: LlamaConfig) -> Rotary:
    """Return the rotation of a configuration."""
    if config.rope_type != "llama3":
        return make_rotary(config, config.head_size, config.rope_theta)
    low = config.rope_low_freq_factor
    high = config.rope_high_freq_factor
    assert low is not None and high is not None, "the configuration checks it"
    original = config.rope_original_max_positions or config.max_positions
    scaling = WavelengthScaling(config.rope_factor or 1.0, low, high, original)
    return Rotary(config.head_size, config.rope_theta, scaling=scaling)


def build(config: LlamaConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights.

    Raises:
        UsageError: the model would predict tokens that it attends to.
    """
    if config.bidirectional and head == "causal-lm":
        raise UsageError(
            "a bidirectional model attends to the tokens that the head causal-lm predicts",
            "it encodes texts: choose the head none",
        )
    model = LlamaFactory(config).build(head)
    if isinstance(model, CausalLM):
        model.logit_cap = config.final_logit_softcapping
    return model
