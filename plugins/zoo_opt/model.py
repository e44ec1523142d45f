"""OPT and XGLM: causal language models from fairseq and metaseq.

Zhang et al. 2022, "OPT: Open Pre-trained Transformer Language Models", arXiv:2205.01068; Lin et al.
2021, "Few-shot Learning with Multilingual Language Models", arXiv:2112.10668.

Decoders with norms before each part of a block and after the last, as GPT-2. OPT has learned
positions, whose table begins with two rows that no text uses, and ReLU. XGLM has scaled embeddings,
the sinusoidal positions of fairseq, whose first text position is 2, and GELU.
"""

from typing import TYPE_CHECKING, Any

from torch import nn

from zoo.nn.decoder import CausalModelFactory, make_causal_blocks
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import make_embeddings
from zoo.nn.positions import fairseq_positions
from zoo.overrides import override
from zoo_opt.config import POSITION_OFFSET, OptConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OptFactory(CausalModelFactory):
    """The default models of decoders, with positions that begin with unused rows."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        embeddings = make_embeddings(
            config,
            norm=False,
            position_offset=POSITION_OFFSET,
            position_table=position_table(config) if config.model_type == "xglm" else None,
        )
        return {
            "embeddings": embeddings,
            "layers": make_causal_blocks(config),
            "final_norm": nn.LayerNorm(self.width, eps=config.layer_norm_eps),
            "pad_token_id": config.pad_token_id,
        }


def position_table(config: OptConfig) -> "NDArray[np.float32]":
    """Return sinusoidal positions, (offset + max_positions, hidden)."""
    rows = config.max_positions + POSITION_OFFSET
    return fairseq_positions(rows, config.hidden_size, config.pad_token_id).numpy()


def build(config: OptConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return OptFactory(config).build(head)
