"""Mistral: a causal language model with local attention.

Jiang et al. 2023, "Mistral 7B", arXiv:2310.06825, section 2. A token attends to a window of the
tokens before it; queries and keys are rotated by their positions; heads of queries share heads of
keys and values; norms have no mean, linear maps no bias, and the feed-forward networks a gate.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from zoo.nn.decoder import CausalBackbone, CausalLM, CausalModelFactory, CausalSequenceClassifier
from zoo.nn.encoder import Encoder, mask_value
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.layers.norms import RMSNorm
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions, Rotary, add_bias
from zoo.nn.transformer import PreNormBlock, SwiGLU
from zoo_mistral.config import MistralConfig


class Mistral(CausalBackbone):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    adds_bias: ClassVar[bool] = True  # the window is a part of the mask

    def __init__(self, config: MistralConfig, **head_args: Any) -> None:
        layers = make_blocks(
            config,
            PreNormBlock,
            attention=lambda _: make_self_attention(config, causal=True, bias=False),
            norm_type=RMSNorm,
            ffn_type=SwiGLU,
            bias=False,
        )
        embeddings = make_embeddings(config, positions=False, norm=False)
        norm = RMSNorm(config.hidden_size, config.layer_norm_eps)
        super().__init__(embeddings, layers, final_norm=norm, **head_args)
        self.rotary = Rotary(config.head_size, config.rope_theta)
        self.sliding_window = config.sliding_window
        self.pad_token_id = config.pad_token_id

    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        """Return the mask of the window and the rotation, the same for all layers."""
        if self.sliding_window is not None:
            far = (positions.distance <= -self.sliding_window)[:, None]
            mask = add_bias(mask, far.to(x.dtype) * mask_value(x.dtype))
        return [AttentionInputs(mask, self.rotary(positions.queries))] * len(self.layers)


class MistralLM(CausalLM, Mistral):
    """The causal language model."""


class MistralSequenceClassifier(CausalSequenceClassifier, Mistral):
    """Sequence classification by the last token."""


class MistralFactory(CausalModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": Mistral,
        "causal-lm": MistralLM,
        "sequence-classification": MistralSequenceClassifier,
    }


def build(config: MistralConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return MistralFactory(config).build(head)
