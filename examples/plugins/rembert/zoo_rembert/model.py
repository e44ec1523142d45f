"""RemBERT: Rethinking Embedding Coupling in Pre-trained Language Models.

Chung, Fevry, Tsai, Johnson and Ruder 2020, arXiv:2010.12821. A Transformer encoder for 110
languages, whose embeddings are its own in two points:

* input embeddings are narrow, and a linear map widens them for the blocks (section 3), so that a
  vocabulary of 250,000 tokens costs few parameters in fine-tuning;
* output embeddings are a table of their own, which is wide: it makes the last hidden states more
  general, and is not needed after pretraining (section 5).
"""

from typing import Any

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import ModelFactory, make_blocks, make_embeddings
from zoo.nn.heads import MLMHead
from zoo_rembert.config import RemBertConfig


class RemBertFactory(ModelFactory):
    """The default models of encoders, with embeddings of two widths."""

    def backbone_args(self) -> dict[str, Any]:
        """Return the parts of the backbone; the map is there even for equal widths."""
        embeddings = make_embeddings(self.config, project=True)
        return {"embeddings": embeddings, "layers": make_blocks(self.config)}

    def masked_lm_head(self) -> MLMHead:
        """Return the head for masked language modelling, with output embeddings of its own."""
        return MLMHead(
            hidden_size=self.width,
            embedding_size=self.config.output_embedding_size,
            vocab_size=self.config.vocab_size,
            act=self.config.activation,
            layer_norm_eps=self.config.layer_norm_eps,
            tied=False,
        )


def build(config: RemBertConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return RemBertFactory(config).build(head)
