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

from typing import Any

from torch import Tensor

from zoo.nn.encoder import Encoder, make_blocks, make_embeddings, make_mlm_head
from zoo.nn.factory import ModelFactory, Pooled
from zoo.nn.heads import DenseHead, FirstTokenPooler, LinearHead, MLMHead
from zoo.nn.layers.embeddings import Embeddings
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


class RobertaFactory(ModelFactory):
    """The usual parts, but for positions and heads."""

    def backbone(self) -> dict[str, Any]:
        """See ``ModelFactory``."""
        inputs = make_embeddings(self.config, CountedEmbeddings)
        inputs.padding = self.config.pad_token_id
        return {"embeddings": inputs, "layers": make_blocks(self.config)}

    def masked_lm_head(self) -> MLMHead:
        """See ``ModelFactory``."""
        return make_mlm_head(self.config, "gelu")

    def sequence_head(self, outputs: int) -> Pooled:
        """See ``ModelFactory``."""
        drops = {"dropout": self.dropout, "inner_dropout": self.dropout}
        return FirstTokenPooler(), DenseHead(self.width, outputs, act="tanh", **drops)

    def choice_head(self) -> Pooled:
        """See ``ModelFactory``."""
        return self.pooler(), LinearHead(self.width, 1, self.config.dropout)


def build(config: RobertaConfig, head: str) -> Encoder:
    """Return a model with fresh weights."""
    return RobertaFactory(config).build(head)
