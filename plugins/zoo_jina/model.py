"""Jina's encoders of long texts.

JinaBERT v2: Günther et al. 2023, "Jina Embeddings 2: 8192-Token General-Purpose Text Embeddings for
Long Documents", arXiv:2310.19923. BERT with two changes (section 3): no position embeddings, but
scores that fall linearly with the distance, in both directions, and feed-forward networks with a
gate.

Jina Embeddings v3: Sturua et al. 2024, "jina-embeddings-v3: Multilingual Embeddings With Task
LoRA", arXiv:2409.10173. XLM-R whose queries and keys are rotated by their positions.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.encoder import Classifier, Encoder, MaskedLM, QuestionAnswering
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_mlm_head,
)
from zoo.nn.heads import DenseHead, FirstTokenPooler
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import (
    AttentionInputs,
    Positions,
    Rotary,
    SymmetricLinearBias,
    add_bias,
)
from zoo.nn.transformer import GatedFeedForward, PostNormBlock, select_tokens
from zoo.overrides import override
from zoo_jina.config import JinaConfig


class JinaFeedForward(GatedFeedForward):
    """A feed-forward network with a gate, whose first linear map has no bias."""

    def __init__(self, *, hidden_size: int, intermediate_size: int, **options: Any) -> None:
        super().__init__(hidden_size=hidden_size, intermediate_size=intermediate_size, **options)
        self.up = nn.Linear(hidden_size, 2 * intermediate_size, bias=False)


class JinaBlock(PostNormBlock):
    """A block without dropout on the output of its feed-forward network."""

    @override
    def forward(self, x: Tensor, *attention_args: Any, positions: Tensor | None = None) -> Tensor:
        x, attended = select_tokens(positions, x, self.attention(x, *attention_args))
        x = self.attention_norm(x + self.dropout(attended))
        return self.ffn_norm(x + self.ffn(x))  # type: ignore[no-any-return]


class LinearEncoder(Encoder):
    """The backbone of JinaBERT.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    adds_bias: bool = True

    def __init__(self, config: JinaConfig, **head_args: Any) -> None:
        blocks = make_blocks(
            config,
            JinaBlock,
            act=config.gate,
            ffn_type=partial(JinaFeedForward, dropout=config.dropout),
        )
        super().__init__(make_embeddings(config, positions=False), blocks, **head_args)
        self.linear_bias = SymmetricLinearBias(config.num_heads)

    @override
    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        bias = self.linear_bias(positions, x.dtype)
        return [AttentionInputs(add_bias(mask, bias))] * len(self.order)


class LinearLM(MaskedLM, LinearEncoder):
    """Masked language modelling with JinaBERT."""


class LinearClassifier(Classifier, LinearEncoder):
    """Classification of texts and tokens with JinaBERT."""


class LinearQuestionAnswering(QuestionAnswering, LinearEncoder):
    """Extractive question answering with JinaBERT."""


class RotaryEncoder(Encoder):
    """The backbone of version 3.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: JinaConfig, **head_args: Any) -> None:
        embeddings = make_embeddings(config, positions=False)
        super().__init__(embeddings, make_blocks(config), **head_args)
        self.rotary = Rotary(config.head_size, config.rope_theta)

    @override
    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        return [AttentionInputs(mask, self.rotary(positions.queries))] * len(self.order)


class RotaryLM(MaskedLM, RotaryEncoder):
    """Masked language modelling with version 3."""


class RotaryClassifier(Classifier, RotaryEncoder):
    """Classification of texts and tokens with version 3."""


class RotaryQuestionAnswering(QuestionAnswering, RotaryEncoder):
    """Extractive question answering with version 3."""


class LinearFactory(ModelFactory):
    """The models of JinaBERT, with BERT's heads."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": LinearEncoder,
        "masked-lm": LinearLM,
        "sequence-classification": LinearClassifier,
        "token-classification": LinearClassifier,
        "question-answering": LinearQuestionAnswering,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        return {"config": self.config}


class RotaryFactory(LinearFactory):
    """The models of version 3, with RoBERTa's heads."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": RotaryEncoder,
        "masked-lm": RotaryLM,
        "sequence-classification": RotaryClassifier,
        "token-classification": RotaryClassifier,
        "question-answering": RotaryQuestionAnswering,
    }

    @override
    def masked_lm_head(self) -> nn.Module:
        return make_mlm_head(self.config, "gelu")

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        dropout = {"dropout": self.dropout, "inner_dropout": self.dropout}
        return FirstTokenPooler(), DenseHead(self.width, outputs, act="tanh", **dropout)


def build(config: JinaConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    factory = LinearFactory if config.model_type == "jina_bert" else RotaryFactory
    return factory(config).build(head)
