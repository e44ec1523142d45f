"""BART: a denoising autoencoder of text.

Lewis, Liu, Goyal, Ghazvininejad, Mohamed, Levy, Stoyanov and Zettlemoyer 2019, "BART: Denoising
Sequence-to-Sequence Pre-training for Natural Language Generation, Translation, and Comprehension",
arXiv:1910.13461.

The first Transformer (arXiv:1706.03762) with GELU, an encoder that reads a corrupted text and a
decoder that restores it (section 2.1). Three things are the implementation's. Both stacks have
learned positions, whose tables begin with two rows that no text uses, and a norm after their
embeddings. The decoder begins with ``</s>``, after which it predicts ``<s>``, so that target and
source look alike. And the logits have a bias, which is zero in all models that were published.

Texts are classified and questions answered with the text as source and as target (section 3). A
text is classified by the decoder's last hidden state at its last ``</s>``, through a linear map,
tanh and a second linear map.
"""

from typing import ClassVar

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import Seq2SeqFactory
from zoo_bart.config import POSITION_OFFSET, BartConfig


class BartFactory(Seq2SeqFactory):
    """The default models of encoder-decoders, with two more rows of positions."""

    position_offset: ClassVar[int] = POSITION_OFFSET


def build(config: BartConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return BartFactory(config).build(head)
