"""BigBird: BERT with attention that is linear in the number of tokens.

Zaheer, Guruganesh, Dubey, Ainslie, Alberti, Ontanon, Pham, Ravula, Wang, Yang and Ahmed 2020, "Big
Bird: Transformers for Longer Sequences", arXiv:2007.14062.

A row is cut into blocks of tokens. The first and the last block attend to all blocks. Each other
one attends to these two, to itself and its neighbours, and to a few random blocks (section 2 and
appendix D). Rows of up to 704 tokens, by default, have full attention. What differs between
training and inference is in ``zoo.nn.block_sparse``.

Three details are the implementation's. Dropout of the embeddings comes before their norm. A text is
classified by its first token's hidden state, through a linear map, the activation function of the
blocks and a second linear map. And answers are found by a feed-forward network with a residual sum
and a norm before the last map, not within the question, which is what precedes the first ``[SEP]``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.block_sparse import BlockSparsePattern
from zoo.nn.encoder import Encoder, MLMWithPairHead, QuestionAnswering
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.heads import DenseHead, FirstTokenPooler, LinearHead, Pooler
from zoo.nn.layers.dropout import Dropout
from zoo.nn.layers.init import init_weights
from zoo.nn.transformer import FeedForward, SelfAttention
from zoo.overrides import override
from zoo_bigbird.config import UNUSED_POOLER_HEADS, BigBirdConfig

QUESTION_PENALTY = 1e6  # It is subtracted from the logits of a question's tokens.


class BigBirdPretraining(MLMWithPairHead):
    """Masked language modelling and next sentence prediction."""

    pair_head = "next_sentence"
    pair_output = "seq_relationship_logits"


class AnswerHead(nn.Module):
    """A feed-forward network with a residual sum and a norm, and the map to two logits."""

    def __init__(self, config: BigBirdConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.dropout = Dropout(config.dropout)
        self.ffn = FeedForward(
            hidden_size=width,
            intermediate_size=config.intermediate_size,
            act=config.activation,
        )
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.out = nn.Linear(width, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, tokens, hidden) to (batch, tokens, 2)."""
        inner = self.dropout(self.ffn(self.dropout(hidden)))
        return self.out(self.norm(inner + hidden))  # type: ignore[no-any-return]


class BigBirdQuestionAnswering(QuestionAnswering):
    """Extractive question answering, with low logits within the question."""

    sep_token_id: int = -1

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        last_of_question = (input_ids == self.sep_token_id).int().argmax(dim=1, keepdim=True)
        is_question = positions <= last_of_question
        if token_type_ids is None:
            token_type_ids = (~is_question).long()
        logits = super().forward(input_ids, attention_mask, token_type_ids)
        # The first token stands for no answer.
        is_masked = is_question & (positions > 0)
        masked_logits = {}
        for name, values in logits.items():
            penalty = min(QUESTION_PENALTY, torch.finfo(values.dtype).max / 2)
            masked_logits[name] = values - is_masked.to(values.dtype) * penalty
        return masked_logits


class BigBirdFactory(ModelFactory):
    """The default models of encoders with block-sparse attention and heads of their own."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **ModelFactory.model_classes,
        "question-answering": BigBirdQuestionAnswering,
        "pretraining": BigBirdPretraining,
    }

    @override
    def build(self, head: str) -> Encoder:
        model = super().build(head)
        if isinstance(model, BigBirdQuestionAnswering):
            model.sep_token_id = self.config.sep_token_id
        if head in UNUSED_POOLER_HEADS and self.config.pooler:
            # The Hub's class has a pooler that it does not read. It is kept for its files.
            pooler = Pooler(self.width).requires_grad_(False)
            init_weights(pooler, std=self.config.initializer_range)
            model.unused_pooler = pooler
        return model

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        return {
            "embeddings": make_embeddings(config, dropout_before_norm=True),
            "layers": make_blocks(config, attention=self.attention),
            "pattern": BlockSparsePattern.from_config(config),
        }

    def attention(self, index: int) -> SelfAttention:
        """Return the attention of a block."""
        return make_self_attention(self.config, bias=self.config.use_bias, out_bias=True)

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        if head == "pretraining":
            is_next = nn.Linear(self.width, 2)  # class 0: it follows, class 1: it does not
            return self.mlm_and_pair_head(BigBirdPretraining.pair_head, is_next)
        return super().pooler_and_head(head)

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        dropout = {"dropout": self.dropout, "inner_dropout": self.dropout}
        head = DenseHead(self.width, outputs, act=self.config.activation, **dropout)
        return FirstTokenPooler(), head

    @override
    def choice_head(self) -> PoolerAndHead:
        return self.pooler(), LinearHead(self.width, 1, self.dropout)

    @override
    def span_head(self) -> nn.Module:
        return AnswerHead(self.config)


def build(config: BigBirdConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return BigBirdFactory(config).build(head)
