"""DistilBERT, a distilled version of BERT.

Sanh, Debut, Chaumond and Wolf 2019, "DistilBERT, a distilled version of BERT: smaller, faster,
cheaper and lighter", arXiv:1910.01108.

The paper in short. A student with every second block of a BERT, and without its token types and
its pooler, begins with the teacher's weights and learns from three losses (section 3): to predict
what the teacher predicts, at a softer temperature; to find the masked tokens; and to turn its
hidden vectors the way the teacher's point. It keeps 97 % of the teacher's score with 40 % fewer
parameters.

A text is classified by its first token's vector, through a linear map, ReLU and another one.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from zoo.nn.blocks import PostNormBlock
from zoo.nn.encoder import (
    Classifier,
    Encoder,
    MaskedLM,
    MultipleChoice,
    QuestionAnswering,
    blocks,
    embeddings,
    masked_token_head,
)
from zoo.nn.heads import DenseHead, FirstToken, LinearHead
from zoo.nn.init import init_weights
from zoo_distilbert.config import DistilBertConfig

if TYPE_CHECKING:
    from zoo.nn.cache import LayerCache


class Block(PostNormBlock):
    """A block that drops nothing of what attention returns, in training."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, cache: "LayerCache | None" = None
    ) -> Tensor:
        """See ``PostNormBlock``."""
        x = self.attention_norm(x + self.attention(x, mask, cache))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))  # type: ignore[no-any-return]


def build(config: DistilBertConfig, head: str) -> Encoder:
    """Return a model with fresh weights."""
    model = _assemble(config, head)
    init_weights(model, std=config.initializer_range)
    return model


def _assemble(config: DistilBertConfig, head: str) -> Encoder:
    width, labels, dropout = config.hidden_size, len(config.labels), config.classifier_dropout
    trunk = embeddings(config), blocks(config, Block)
    match head:
        case "none":
            return Encoder(*trunk)
        case "masked-lm":
            return MaskedLM(*trunk, head=masked_token_head(config))
        case "sequence-classification":
            dense = DenseHead(width, labels, act="relu", inner_dropout=dropout)
            return Classifier(*trunk, pooler=FirstToken(), head=dense)
        case "multiple-choice":
            dense = DenseHead(width, 1, act="relu", inner_dropout=dropout)
            return MultipleChoice(*trunk, pooler=FirstToken(), head=dense)
        case "token-classification":
            return Classifier(*trunk, head=LinearHead(width, labels, config.dropout))
        case "question-answering":
            return QuestionAnswering(*trunk, head=LinearHead(width, 2, config.question_dropout))
    raise ValueError(f"DistilBERT has no head {head!r}")
