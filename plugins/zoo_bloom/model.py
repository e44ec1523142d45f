"""BLOOM: a causal language model with linear biases of attention scores.

BigScience Workshop 2022, "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model",
arXiv:2211.05100. It differs from GPT-2 in two points (section 3.2): instead of position
embeddings, the scores of attention are lowered in proportion to the distance of query and key
(Press et al. 2022, arXiv:2108.12409), and the token embeddings are normalized.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.decoder import CausalBackbone, CausalLM, CausalModelFactory, CausalSequenceClassifier
from zoo.nn.encoder import Classifier, Encoder, QuestionAnswering
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, LinearBias, Positions, add_bias
from zoo.nn.transformer import PreNormBlock
from zoo_bloom.config import BloomConfig


class Bloom(CausalBackbone):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    adds_bias = True

    def __init__(self, config: BloomConfig, **head_args: Any) -> None:
        layers = make_blocks(
            config, PreNormBlock, attention=lambda _: make_self_attention(config, causal=True)
        )
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        embeddings = make_embeddings(config, positions=False)
        super().__init__(embeddings, layers, final_norm=norm, **head_args)
        self.bias = LinearBias(config.num_heads)
        self.pad_token_id = config.pad_token_id

    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        """Return the mask with the biases, the same for all layers; see ``Encoder``."""
        bias = self.bias(positions, x.dtype)
        return [AttentionInputs(add_bias(mask, bias))] * len(self.layers)


class BloomLM(CausalLM, Bloom):
    """The causal language model."""


class BloomSequenceClassifier(CausalSequenceClassifier, Bloom):
    """Sequence classification by the last token."""


class BloomTokenClassifier(Classifier, Bloom):
    """Token classification."""


class BloomQuestionAnswering(QuestionAnswering, Bloom):
    """Extractive question answering."""


class BloomFactory(CausalModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": Bloom,
        "causal-lm": BloomLM,
        "sequence-classification": BloomSequenceClassifier,
        "token-classification": BloomTokenClassifier,
        "question-answering": BloomQuestionAnswering,
    }


def build(config: BloomConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return BloomFactory(config).build(head)
