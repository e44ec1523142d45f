"""GPT-NeoX: a causal language model whose blocks do two things at once.

Black et al. 2022, "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", arXiv:2204.06745,
section 2.1. Attention and feed-forward network of a block read the same input, each through a norm
of its own, and a part of the components of queries and keys is rotated by the position.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.decoder import CausalBackbone, CausalLM, CausalModelFactory, CausalSequenceClassifier
from zoo.nn.encoder import Classifier, Encoder, QuestionAnswering
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions, Rotary
from zoo.nn.transformer import ParallelBlock, PreNormBlock
from zoo_neox.config import NeoxConfig


class Neox(CausalBackbone):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: NeoxConfig, **head_args: Any) -> None:
        layers = make_blocks(
            config,
            ParallelBlock if config.parallel else PreNormBlock,
            attention=lambda _: make_self_attention(
                config, causal=True, bias=config.attention_bias
            ),
        )
        embeddings = make_embeddings(config, positions=False, norm=False)
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        super().__init__(embeddings, layers, final_norm=norm, **head_args)
        self.rotary = Rotary(config.rotary_width, config.rope_theta)
        self.pad_token_id = config.pad_token_id

    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        """Return the rotation, the same for all layers; see ``Encoder``."""
        return [AttentionInputs(mask, self.rotary(positions.queries))] * len(self.layers)


class NeoxLM(CausalLM, Neox):
    """The causal language model."""


class NeoxSequenceClassifier(CausalSequenceClassifier, Neox):
    """Sequence classification by the last token."""


class NeoxTokenClassifier(Classifier, Neox):
    """Token classification."""


class NeoxQuestionAnswering(QuestionAnswering, Neox):
    """Extractive question answering."""


class NeoxFactory(CausalModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": Neox,
        "causal-lm": NeoxLM,
        "sequence-classification": NeoxSequenceClassifier,
        "token-classification": NeoxTokenClassifier,
        "question-answering": NeoxQuestionAnswering,
    }


def build(config: NeoxConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return NeoxFactory(config).build(head)
