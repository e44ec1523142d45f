"""RoBERTa: A Robustly Optimized BERT Pretraining Approach.

Liu et al. 2019, arXiv:1907.11692; Conneau et al. 2020, "Unsupervised Cross-lingual
Representation Learning at Scale", arXiv:1911.02116, for XLM-R; Martin et al. 2020,
arXiv:1911.03894, for CamemBERT.

BERT's architecture with other pretraining: longer, on more text, in larger batches, with masked
language modelling only, and with masks drawn anew each time (section 4). Without next sentence
prediction there is one segment type, and no objective trains the pooler. The tokenizer is
byte-level BPE, so no token is unknown; the models for other languages use SentencePiece.

Two things are the implementation's. The position of a token is its index among the tokens of its
row that are not padding, counted from ``pad_token_id + 1``; all padding has the position
``pad_token_id``. And a text is classified by the hidden state of ``<s>``, through a linear map,
tanh and a second linear map.
"""

from typing import Any

from torch import Tensor

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_mlm_head,
)
from zoo.nn.heads import DenseHead, FirstTokenPooler, LinearHead, MLMHead
from zoo.nn.transformer import Embeddings
from zoo.overrides import override
from zoo_roberta.config import RobertaConfig


class CountedEmbeddings(Embeddings):
    """Embeddings whose positions count the tokens of a row that are not padding."""

    padding: int  # the padding token, and the position of padding

    @override
    def default_positions(self, input_ids: Tensor) -> Tensor:
        real = (input_ids != self.padding).long()
        numbers = (real.cumsum(1) + self.position_offset) * real
        return self.positions(numbers + self.padding)  # type: ignore[no-any-return]

    @override
    def embed_positions(self, position_ids: Tensor) -> Tensor:
        """Return the embeddings of positions that count from 0; row ``padding + 1`` is first."""
        return super().embed_positions(position_ids + self.padding + 1)


class RobertaFactory(ModelFactory):
    """The default models of encoders, with other positions and heads."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        embeddings = make_embeddings(self.config, CountedEmbeddings)
        embeddings.padding = self.config.pad_token_id
        return {"embeddings": embeddings, "layers": make_blocks(self.config)}

    @override
    def masked_lm_head(self) -> MLMHead:
        return make_mlm_head(self.config, "gelu")

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        dropout = {"dropout": self.dropout, "inner_dropout": self.dropout}
        return FirstTokenPooler(), DenseHead(self.width, outputs, act="tanh", **dropout)

    @override
    def choice_head(self) -> PoolerAndHead:
        return self.pooler(), LinearHead(self.width, 1, self.config.dropout)


def build(config: RobertaConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return RobertaFactory(config).build(head)
