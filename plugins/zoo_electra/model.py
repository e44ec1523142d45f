"""ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators.

Clark, Luong, Le and Manning 2020, arXiv:2003.10555.

Two encoders with BERT's architecture are trained together (section 2). The *generator*, the
smaller one, is a masked language model. Tokens sampled from it replace the masked ones, and the
*discriminator* predicts for every token whether it is the original or a replacement: it learns
from all positions, not only from the masked ones. After training, the generator is discarded.

The two share their token embeddings, which therefore have one width. Where the blocks have
another width, a linear map projects the embeddings (section 3.2). There is no pooler: a text is
classified by its first token's hidden state, through a linear map, GELU and a second linear map.
"""

from collections.abc import Mapping
from typing import ClassVar

from zoo.nn.encoder import Encoder, TokenDiscriminator
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead, make_mlm_head
from zoo.nn.heads import DenseHead, FirstTokenPooler, MLMHead
from zoo.overrides import override
from zoo_electra.config import ElectraConfig


class ElectraFactory(ModelFactory):
    """The default models of encoders with heads of two linear maps, and the discriminator."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **ModelFactory.model_classes,
        "replaced-token-detection": TokenDiscriminator,
    }

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        if head == "replaced-token-detection":
            return None, DenseHead(self.width, 1, act=self.config.activation)
        return super().pooler_and_head(head)

    @override
    def masked_lm_head(self) -> MLMHead:
        return make_mlm_head(self.config, "gelu")

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        dropout = {"dropout": self.dropout, "inner_dropout": self.dropout}
        return FirstTokenPooler(), DenseHead(self.width, outputs, act="gelu", **dropout)

    @override
    def choice_head(self) -> PoolerAndHead:
        dropout = self.config.summary_dropout
        return FirstTokenPooler(), DenseHead(self.width, 1, act="gelu", inner_dropout=dropout)


def build(config: ElectraConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return ElectraFactory(config).build(head)
