"""Marian: the first Transformer, for translation.

Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++", arXiv:1804.00344; the
models of OPUS-MT are Tiedemann and Thottingal 2020, "OPUS-MT: Building open translation services
for the World".

Encoder and decoder are those of arXiv:1706.03762, with norms after each part of a block, sinusoidal
positions and, in the published models, swish. The decoder begins with the padding token, whose
embedding is zero. The logits have a bias.
"""

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import (
    Decoder,
    Seq2SeqFactory,
    Seq2SeqLM,
    TargetEmbeddings,
    make_decoder_blocks,
)
from zoo.overrides import override
from zoo.weights import sinusoidal_positions
from zoo_marian.config import MarianConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TwoVocabularies(Seq2SeqLM):
    """A language model whose output embeddings are the decoder's token embeddings."""

    @property
    @override
    def output_embeddings(self) -> Tensor:
        if self.head is not None:
            return super().output_embeddings
        assert self.decoder.embeddings is not None, "the decoder has a table of its own"
        return self.decoder.embeddings.tokens.weight  # type: ignore[no-any-return]


class MarianFactory(Seq2SeqFactory):
    """The models with one vocabulary."""

    embedding_norm: ClassVar[bool] = False

    @override
    def position_table(self) -> "NDArray[np.float32]":
        return sinusoidal_positions(self.config.max_positions, self.width)


class TwoVocabulariesFactory(MarianFactory):
    """The models with a vocabulary of sources and one of targets."""

    model_classes: ClassVar[dict[str, type[Encoder]]] = {
        **Seq2SeqFactory.model_classes,
        "seq2seq-lm": TwoVocabularies,
    }

    @override
    def decoder(self) -> Decoder:
        blocks = make_decoder_blocks(self.config)
        return Decoder(blocks, self.norm_after_blocks(), self.embeddings(TargetEmbeddings))


def build(config: MarianConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    has_one = config.share_encoder_decoder_embeddings
    factory = MarianFactory if has_one else TwoVocabulariesFactory
    return factory(config).build(head)
