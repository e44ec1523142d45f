"""Ettin's decoders: ModernBERT as a causal language model.

Weller et al. 2025, "Seq vs Seq: An Open Suite of Paired Encoders and Decoders", arXiv:2507.11412,
section 3. The blocks are those of ModernBERT (Warner et al. 2024, arXiv:2412.13663, section 2.1),
and a token attends to itself and to earlier tokens: in every third block to all of them, else to a
window. The heads have a linear map, an activation function and a norm before the last linear map.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.decoder import CausalBackbone, CausalLM, CausalModelFactory, CausalSequenceClassifier
from zoo.nn.encoder import Encoder, mask_value
from zoo.nn.encoder_factory import (
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_mlm_head,
    make_self_attention,
)
from zoo.nn.heads import NormedHead, VocabularyProjection
from zoo.nn.layers.init import init_weights
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions, Rotary, add_bias
from zoo.nn.transformer import AttentionDropoutBlock, GatedFeedForward
from zoo.overrides import override
from zoo_ettin.config import FULL, EttinConfig


class Ettin(CausalBackbone):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    adds_bias = True  # A window of earlier tokens is a part of the mask.

    def __init__(self, config: EttinConfig, **head_args: Any) -> None:
        layers = make_blocks(
            config,
            AttentionDropoutBlock,
            attention=lambda _: make_self_attention(config, causal=True, bias=False),
            ffn_type=partial(GatedFeedForward, dropout=config.dropout),
            dropout=config.attention_dropout,
            bias=False,
        )
        # The embeddings are normalized already.
        layers[0].attention_norm = nn.Identity()
        make_norm = partial(nn.LayerNorm, config.hidden_size, eps=config.layer_norm_eps, bias=False)
        embeddings = make_embeddings(config, positions=False)
        embeddings.norm = make_norm()
        super().__init__(embeddings, layers, final_norm=make_norm(), **head_args)
        self.global_rotary = Rotary(config.head_size, config.global_rope_theta)
        self.local_rotary = Rotary(config.head_size, config.local_rope_theta)
        self.layer_types = config.layer_types
        self.window = config.window
        self.pad_token_id = config.pad_token_id

    @override
    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        is_far = (positions.distance <= -self.window)[:, None]
        window = add_bias(mask, is_far.to(x.dtype) * mask_value(x.dtype))
        near = AttentionInputs(window, self.local_rotary(positions.queries))
        full = AttentionInputs(mask, self.global_rotary(positions.queries))
        return [full if layer_type == FULL else near for layer_type in self.layer_types]


class EttinLM(CausalLM, Ettin):
    """The causal language model, whose head has a layer before the output embeddings."""

    @property
    @override
    def output_embeddings(self) -> Tensor:
        decoder = self.head.decoder
        table = self.embeddings.tokens if decoder is None else decoder
        return table.weight  # type: ignore[no-any-return]

    @override
    def project(self, hidden: Tensor) -> VocabularyProjection:
        return self.head.project(hidden, self.embeddings.tokens)  # type: ignore[no-any-return]


class EttinSequenceClassifier(CausalSequenceClassifier, Ettin):
    """Sequence classification by the last token."""


class EttinFactory(CausalModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": Ettin,
        "causal-lm": EttinLM,
        "sequence-classification": EttinSequenceClassifier,
    }

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        config = self.config
        match head:
            case "causal-lm":
                return None, make_mlm_head(config, config.classifier_activation, dense_bias=False)
            case "sequence-classification":
                classifier = NormedHead(
                    self.width,
                    len(config.labels),
                    act=config.classifier_activation,
                    layer_norm_eps=config.layer_norm_eps,
                    dropout=config.classifier_dropout,
                    bias=False,
                )
                return None, classifier
        return super().pooler_and_head(head)


_OUTPUTS = ("attention.out", "ffn.down")  # Linear maps of a block to the residual path.


def build(config: EttinConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights, as transformers initializes it.

    What is added to the residual path begins smaller by the number of such sums.
    """
    model = EttinFactory(config).build(head)
    small = [f"layers.{i}.{part}" for i in range(config.num_layers) for part in _OUTPUTS]
    if head != "none":
        small.append("head.dense")
    std = config.initializer_range * (2 * config.num_layers) ** -0.5
    for name in small:
        init_weights(model.get_submodule(name), std=std)
    if isinstance(model.head, NormedHead):
        init_weights(model.head.out, std=config.hidden_size**-0.5)
    return model
