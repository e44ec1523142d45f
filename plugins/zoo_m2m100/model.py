"""M2M100 and NLLB: one model for the translation between all pairs of many languages.

Fan et al. 2020, "Beyond English-Centric Multilingual Machine Translation", arXiv:2010.11125; NLLB
Team 2022, "No Language Left Behind: Scaling Human-Centered Machine Translation", arXiv:2207.04672.

The Transformer of arXiv:1706.03762 with norms before each part of a block and after the last,
scaled embeddings and the sinusoidal positions of fairseq, whose first text position is 2. Source
and target begin with a token of their language.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import Seq2SeqFactory
from zoo.nn.positions import fairseq_positions
from zoo.nn.transformer import Embeddings
from zoo.overrides import override
from zoo_m2m100.config import M2M100Config

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class M2M100Factory(Seq2SeqFactory):
    """The models with each head."""

    pre_norm: ClassVar[bool] = True
    embedding_norm: ClassVar[bool] = False
    final_norm: ClassVar[bool] = True

    @override
    def embeddings(self, embeddings_type: type[Embeddings] = Embeddings, **changes: Any) -> Any:
        offset = self.config.position_offset
        return super().embeddings(embeddings_type, **{"position_offset": offset, **changes})

    @override
    def position_table(self) -> "NDArray[np.float32]":
        return position_table(self.config)


def position_table(config: M2M100Config) -> "NDArray[np.float32]":
    """Return the positions, of padding first, (offset + max_positions, hidden)."""
    rows = config.max_positions + config.position_offset
    return fairseq_positions(rows, config.hidden_size, config.pad_token_id).numpy()


def build(config: M2M100Config, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return M2M100Factory(config).build(head)
