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

from zoo.nn.encoder import Encoder, TokenDiscriminator, make_mlm_head
from zoo.nn.factory import ModelFactory, ModelParts, Pooled
from zoo.nn.heads import DenseHead, FirstTokenPooler, MLMHead
from zoo_electra.config import ElectraConfig


class ElectraFactory(ModelFactory):
    """The usual trunk, and heads of two maps."""

    def build_head(self, head: str) -> ModelParts:
        """See ``ModelFactory``."""
        if head == "replaced-token-detection":
            return TokenDiscriminator, None, DenseHead(self.width, 1, act=self.config.activation)
        return super().build_head(head)

    def masked_lm_head(self) -> MLMHead:
        """See ``ModelFactory``."""
        return make_mlm_head(self.config, "gelu")

    def sequence_head(self, outputs: int) -> Pooled:
        """See ``ModelFactory``."""
        drops = {"dropout": self.dropout, "inner_dropout": self.dropout}
        return FirstTokenPooler(), DenseHead(self.width, outputs, act="gelu", **drops)

    def choice_head(self) -> Pooled:
        """See ``ModelFactory``."""
        drop = self.config.summary_dropout
        return FirstTokenPooler(), DenseHead(self.width, 1, act="gelu", inner_dropout=drop)


def build(config: ElectraConfig, head: str) -> Encoder:
    """Return a model with fresh weights."""
    return ElectraFactory(config).build(head)
