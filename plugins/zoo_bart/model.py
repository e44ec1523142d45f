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

mBART (Liu et al. 2020, "Multilingual Denoising Pre-training for Neural Machine Translation",
arXiv:2001.08210) has norms before each part of a block and after the last block. What its decoder
reads first is a language, which ends the text of a source that is read as its target.
"""

from typing import Any, ClassVar

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import Seq2SeqFactory
from zoo.overrides import override
from zoo_bart.config import POSITION_OFFSET, BartConfig


class BartFactory(Seq2SeqFactory):
    """The default models of encoder-decoders, with two more rows of positions."""

    position_offset: ClassVar[int] = POSITION_OFFSET


class MBartFactory(BartFactory):
    """The models of mBART."""

    pre_norm: ClassVar[bool] = True
    final_norm: ClassVar[bool] = True

    @override
    def backbone_args(self) -> dict[str, Any]:
        return {**super().backbone_args(), "wraps_source": True}


def build(config: BartConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    factory = MBartFactory if config.model_type == "mbart" else BartFactory
    return factory(config).build(head)
