"""PEGASUS: the first Transformer with norms before each part of a block.

Zhang, Zhao, Saleh and Liu 2019, "PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive
Summarization", arXiv:1912.08777. Positions are sinusoidal, and embeddings are scaled.
"""

from typing import TYPE_CHECKING, ClassVar

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import Seq2SeqFactory
from zoo.overrides import override
from zoo.weights import sinusoidal_positions
from zoo_pegasus.config import PegasusConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PegasusFactory(Seq2SeqFactory):
    """The models with each head."""

    pre_norm: ClassVar[bool] = True
    embedding_norm: ClassVar[bool] = False
    final_norm: ClassVar[bool] = True

    @override
    def position_table(self) -> "NDArray[np.float32]":
        return sinusoidal_positions(self.config.max_positions, self.width)


def build(config: PegasusConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return PegasusFactory(config).build(head)
