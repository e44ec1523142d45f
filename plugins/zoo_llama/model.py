"""Llama and the decoders of its kind: rotary positions, norms without mean, gated units.

Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", arXiv:2302.13971,
section 2.2. Queries and keys are rotated by their positions, heads of queries may share heads of
keys and values, norms have no mean, and feed-forward networks have a gate. In what the models
differ, is in ``zoo_llama.config``: where norms are, whether queries and keys are normalized, which
linear maps have biases, which blocks attend to a window of tokens or do not rotate, how rotations
are scaled, and which scores are bounded.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.errors import UsageError
from zoo.nn.decoder import CausalBackbone, CausalLM, CausalModelFactory, CausalSequenceClassifier
from zoo.nn.encoder import Classifier, Encoder, QuestionAnswering, mask_value
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.heads import VocabularyProjection
from zoo.nn.kernels.local_attention import local_attention
from zoo.nn.layers.norms import RMSNorm
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import (
    AttentionInputs,
    LinearScaling,
    Positions,
    Rotary,
    WavelengthScaling,
    YarnScaling,
    add_bias,
)
from zoo.nn.transformer import GatedFeedForward, PreNormBlock, SelfAttention, select_tokens
from zoo.overrides import override
from zoo_llama.config import SLIDING, LlamaConfig


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


class Llama(CausalBackbone):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: LlamaConfig, **head_args: Any) -> None:
        architecture = config.architecture
        norm_type = partial(RMSNorm, offset=architecture.norm_offset)
        layers = make_blocks(
            config,
            partial(
                LlamaBlock,
                norm_before=architecture.norm_before,
                norm_after=architecture.norm_after,
            ),
            attention=lambda _: _make_attention(config, norm_type),
            norm_type=norm_type,
            ffn_type=GatedFeedForward,
            bias=config.mlp_bias,
        )
        scale = config.hidden_size**0.5 if architecture.scaled_embeddings else 1.0
        embeddings = make_embeddings(
            config, positions=False, norm=False, scale=scale, rounds_scale=True
        )
        norm = norm_type(config.hidden_size, config.layer_norm_eps)
        super().__init__(embeddings, layers, final_norm=norm, **head_args)
        self.rotary = _make_rotary(config)
        self.local_rotary = self.rotary
        if config.local_rope_theta is not None:
            self.local_rotary = Rotary(config.head_size, config.local_rope_theta)
        self.layer_types = config.layer_types
        self.rotates = config.no_rope_layers
        self.window = config.window
        self.causal = not config.bidirectional
        # A window of earlier tokens is a part of the mask.
        has_window = self.causal and SLIDING in self.layer_types
        self.adds_bias = has_window or config.attn_logit_softcapping is not None
        self.pad_token_id = config.pad_token_id

    @override
    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        rotation = self.rotary(positions.queries)
        local_mask: Any = mask
        local_rotation = rotation
        if SLIDING in self.layer_types:
            local_mask = self._window(x, mask, positions)
            if isinstance(local_mask, DocumentOffsets):  # They also leave out padding.
                mask = local_mask._replace(reach=None)
            if self.local_rotary is not self.rotary:
                local_rotation = self.local_rotary(positions.queries)
        inputs = []
        for layer_type, rotates in zip(self.layer_types, self.rotates, strict=True):
            if layer_type == SLIDING:
                layer_inputs = AttentionInputs(local_mask, local_rotation)
            else:
                layer_inputs = AttentionInputs(mask, rotation)
            if not rotates:
                layer_inputs = layer_inputs._replace(rotation=None)
            inputs.append(layer_inputs)
        return inputs

    def _window(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Any:
        """Return what restricts attention to a window of tokens."""
        assert self.window is not None, "a layer has local attention"
        if not self.causal:
            return local_attention(x, mask, positions, self.window // 2)
        is_far = (positions.distance <= -self.window)[:, None]
        return add_bias(mask, is_far.to(x.dtype) * mask_value(x.dtype))


def _make_attention(config: LlamaConfig, norm_type: Callable[..., nn.Module]) -> SelfAttention:
    """Return the attention of a block."""
    architecture = config.architecture
    norm = partial(norm_type, eps=config.layer_norm_eps)
    return make_self_attention(
        config,
        causal=not config.bidirectional,
        head_size=config.head_size,
        scale=config.attention_scale,
        cap=config.attn_logit_softcapping,
        bias=config.attention_bias or architecture.qkv_bias,
        out_bias=config.attention_bias,
        qk_norm=None if architecture.qk_norm is None else norm,
        norms_heads=architecture.qk_norm == "heads",
    )


def _make_rotary(config: LlamaConfig) -> Rotary:
    """Return the rotation of a configuration."""
    factor = config.rope_factor or 1.0
    original = config.rope_original_max_positions or config.max_positions
    rotary = partial(Rotary, config.head_size, config.rope_theta)
    match config.rope_type:
        case "linear":
            return rotary(scaling=LinearScaling(factor))
        case "llama3":
            low = config.rope_low_freq_factor
            high = config.rope_high_freq_factor
            assert low is not None and high is not None, "the configuration checks it"
            return rotary(scaling=WavelengthScaling(factor, low, high, original))
        case "yarn":
            scaling = YarnScaling(
                factor,
                config.rope_theta,
                original,
                config.rope_beta_fast or 32.0,
                config.rope_beta_slow or 1.0,
            )
            magnitude = config.rope_attention_factor
            if magnitude is None:
                magnitude = scaling.magnitude
            return rotary(scaling=scaling, magnitude=magnitude)
    return rotary()


class LlamaLM(CausalLM, Llama):
    """The causal language model."""

    def __init__(self, config: LlamaConfig, **head_args: Any) -> None:
        super().__init__(config, **head_args)
        self.cap = config.final_logit_softcapping

    @override
    def project(self, hidden: Tensor) -> VocabularyProjection:
        return super().project(hidden)._replace(cap=self.cap)


class LlamaSequenceClassifier(CausalSequenceClassifier, Llama):
    """Sequence classification by the last token."""


class LlamaTokenClassifier(Classifier, Llama):
    """Token classification."""


class LlamaQuestionAnswering(QuestionAnswering, Llama):
    """Extractive question answering."""


class LlamaFactory(CausalModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": Llama,
        "causal-lm": LlamaLM,
        "sequence-classification": LlamaSequenceClassifier,
        "token-classification": LlamaTokenClassifier,
        "question-answering": LlamaQuestionAnswering,
    }


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
    return LlamaFactory(config).build(head)
