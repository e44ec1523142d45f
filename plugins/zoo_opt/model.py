"""OPT and XGLM: causal language models from fairseq and metaseq.

Zhang et al. 2022, "OPT: Open Pre-trained Transformer Language Models", arXiv:2205.01068; Lin et al.
2021, "Few-shot Learning with Multilingual Language Models", arXiv:2112.10668.

Decoders with norms before each part of a block and after the last, as GPT-2. OPT has learned
positions, whose table begins with two rows that no text uses, and ReLU. XGLM has scaled embeddings,
the sinusoidal positions of fairseq, whose first text position is 2, and GELU.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from zoo.nn.decoder import CausalBackbone, CausalLM, CausalModelFactory, CausalSequenceClassifier
from zoo.nn.encoder import Encoder, QuestionAnswering
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.positions import fairseq_positions
from zoo.nn.transformer import PreNormBlock
from zoo_opt.config import POSITION_OFFSET, OptConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OptBackbone(CausalBackbone):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: OptConfig, **head_args: Any) -> None:
        layers = make_blocks(
            config, PreNormBlock, attention=lambda _: make_self_attention(config, causal=True)
        )
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        embeddings = make_embeddings(
            config,
            norm=False,
            position_offset=POSITION_OFFSET,
            position_table=position_table(config) if config.model_type == "xglm" else None,
        )
        super().__init__(embeddings, layers, final_norm=norm, **head_args)
        self.pad_token_id = config.pad_token_id


def position_table(config: OptConfig) -> "NDArray[np.float32]":
    """Return sinusoidal positions, (offset + max_positions, hidden)."""
    rows = config.max_positions + POSITION_OFFSET
    return fairseq_positions(rows, config.hidden_size, config.pad_token_id).numpy()


class OptLM(CausalLM, OptBackbone):
    """The causal language model."""


class OptSequenceClassifier(CausalSequenceClassifier, OptBackbone):
    """Sequence classification by the last token."""


class OptQuestionAnswering(QuestionAnswering, OptBackbone):
    """Extractive question answering."""


class OptFactory(CausalModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": OptBackbone,
        "causal-lm": OptLM,
        "sequence-classification": OptSequenceClassifier,
        "question-answering": OptQuestionAnswering,
    }


def build(config: OptConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return OptFactory(config).build(head)
