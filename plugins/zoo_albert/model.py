"""ALBERT: A Lite BERT for Self-supervised Learning of Language Representations.

Lan, Chen, Goodman, Gimpel, Sharma and Soricut 2020, arXiv:1909.11942.

BERT's encoder with two ways to save parameters and one other objective (section 3.1). *Factorized
embeddings*: token embeddings are narrow, and a linear map projects them to the width of the
blocks. *Shared parameters*: the same block runs in every layer; in general there are groups of
blocks; each runs in an equal number of consecutive layers. *Sentence order prediction*:
the pooled hidden state is classified by whether two consecutive segments were swapped.

Version 2 was trained longer, on more text and without dropout.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from zoo.nn.encoder import Encoder, MLMWithPairHead
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead, make_blocks, make_embeddings
from zoo.overrides import override
from zoo_albert.config import AlbertConfig


class AlbertPretraining(MLMWithPairHead):
    """Masked language modelling and sentence order prediction."""

    pair_head = "order"
    pair_output = "sop_logits"


class AlbertFactory(ModelFactory):
    """The default models of encoders with shared blocks, and ``Pretraining``."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **ModelFactory.model_classes,
        "pretraining": AlbertPretraining,
    }

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        if head == "pretraining":
            # There is no dropout, as in get_sentence_order_output of run_pretraining.py.
            is_swapped = nn.Linear(self.width, len(self.config.labels))
            return self.mlm_and_pair_head(AlbertPretraining.pair_head, is_swapped)
        return super().pooler_and_head(head)

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        return {
            "embeddings": make_embeddings(config, project=True),
            "layers": make_blocks(config, count=config.num_groups * config.blocks_in_group),
            "order": config.order,
        }


def build(config: AlbertConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return AlbertFactory(config).build(head)
