"""RoBERTa: A Robustly Optimized BERT Pretraining Approach.

Liu et al. 2019, arXiv:1907.11692; Conneau et al. 2020, "Unsupervised Cross-lingual
Representation Learning at Scale", arXiv:1911.02116, for XLM-R; Martin et al. 2020,
arXiv:1911.03894, for CamemBERT.

The papers in short. The architecture is BERT's; what is different is how it is taught: longer,
on more text, in larger batches, with the masked-token objective alone and with masks drawn anew
each time (section 4). Without the next-sentence objective there is one kind of segment, and
nothing teaches a pooler. Texts are cut into pieces of bytes, so that nothing is unknown; the
models for other languages use SentencePiece.

Two things are the implementation's. A token's position is its number among the row's real
tokens, counted from the row behind that of the padding token, and all padding stands at that
row. And a text is classified by ``<s>`` through a linear map, tanh and another linear map.
"""

from torch import Tensor

from zoo.nn.embeddings import Embeddings
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
from zoo.nn.heads import DenseHead, FirstToken, LinearHead, Pooler
from zoo.nn.init import init_weights
from zoo_roberta.config import RobertaConfig


class CountedEmbeddings(Embeddings):
    """Embeddings whose positions count the real tokens of each row.

    Attributes:
        padding: the token that is not counted, and the position at which it stands.
    """

    padding: int

    def where(self, input_ids: Tensor) -> Tensor:
        """Embed the position of each token, (batch, tokens, hidden)."""
        real = (input_ids != self.padding).long()
        return self.positions(real.cumsum(1) * real + self.padding)  # type: ignore[no-any-return]

    def at(self, position_ids: Tensor) -> Tensor:
        """Embed positions that are counted from 0: the first is behind that of padding."""
        return super().at(position_ids + self.padding + 1)


def build(config: RobertaConfig, head: str) -> Encoder:
    """Return a model with fresh weights."""
    model = _assemble(config, head)
    init_weights(model, std=config.initializer_range)
    return model


def _assemble(config: RobertaConfig, head: str) -> Encoder:
    width, labels, own = config.hidden_size, len(config.labels), config.classifier_dropout
    dropout = config.dropout if own is None else own
    inputs = embeddings(config, CountedEmbeddings)
    inputs.padding = config.pad_token_id
    trunk = inputs, blocks(config)
    match head:
        case "none":
            return Encoder(*trunk, pooler=Pooler(width) if config.pooler else None)
        case "masked-lm":
            return MaskedLM(*trunk, head=masked_token_head(config, "gelu"))
        case "sequence-classification":
            dense = DenseHead(width, labels, act="tanh", dropout=dropout, inner_dropout=dropout)
            return Classifier(*trunk, pooler=FirstToken(), head=dense)
        case "multiple-choice":
            linear = LinearHead(width, 1, config.dropout)
            return MultipleChoice(*trunk, pooler=Pooler(width), head=linear)
        case "token-classification":
            return Classifier(*trunk, head=LinearHead(width, labels, dropout))
        case "question-answering":
            return QuestionAnswering(*trunk, head=LinearHead(width, 2))
    raise ValueError(f"RoBERTa has no head {head!r}")
