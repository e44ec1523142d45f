"""ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators.

Clark, Luong, Le and Manning 2020, arXiv:2003.10555.

The paper in short. Two encoders of BERT's architecture are taught together (section 2). The
*generator*, the smaller one, is a masked language model. What it samples for the masked tokens
is put into the text, and the *discriminator* has to say of every token whether it is the original
or a replacement: it learns from all positions, not from the masked ones alone. Afterwards the
generator is thrown away.

The two share their token embeddings, which are therefore as wide in one as in the other. Where
the blocks are narrower or wider than the embeddings, a linear map stands between (section 3.2).
There is no pooler: a text is classified by its first token's vector, through a linear map, GELU
and another linear map.
"""

from zoo.nn.encoder import (
    Classifier,
    Encoder,
    MaskedLM,
    MultipleChoice,
    QuestionAnswering,
    TokenScores,
    blocks,
    embeddings,
    masked_token_head,
)
from zoo.nn.heads import DenseHead, FirstToken, LinearHead
from zoo.nn.init import init_weights
from zoo_electra.config import ElectraConfig


def build(config: ElectraConfig, head: str) -> Encoder:
    """Return a model with fresh weights."""
    model = _assemble(config, head)
    init_weights(model, std=config.initializer_range)
    return model


def _assemble(config: ElectraConfig, head: str) -> Encoder:
    width, labels, own = config.hidden_size, len(config.labels), config.classifier_dropout
    dropout = config.dropout if own is None else own
    trunk = embeddings(config), blocks(config)
    match head:
        case "none":
            return Encoder(*trunk)
        case "masked-lm":
            return MaskedLM(*trunk, head=masked_token_head(config, "gelu"))
        case "replaced-token-detection":
            return TokenScores(*trunk, head=DenseHead(width, 1, act=config.activation))
        case "sequence-classification":
            dense = DenseHead(width, labels, act="gelu", dropout=dropout, inner_dropout=dropout)
            return Classifier(*trunk, pooler=FirstToken(), head=dense)
        case "multiple-choice":
            dense = DenseHead(width, 1, act="gelu", inner_dropout=config.summary_dropout)
            return MultipleChoice(*trunk, pooler=FirstToken(), head=dense)
        case "token-classification":
            return Classifier(*trunk, head=LinearHead(width, labels, dropout))
        case "question-answering":
            return QuestionAnswering(*trunk, head=LinearHead(width, 2))
    raise ValueError(f"ELECTRA has no head {head!r}")
