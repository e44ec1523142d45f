"""ALBERT: A Lite BERT for Self-supervised Learning of Language Representations.

Lan, Chen, Goodman, Gimpel, Sharma and Soricut 2020, arXiv:1909.11942.

The paper in short. BERT's encoder with two savings and one other objective (section 3.1).
*Factorised embeddings*: words have narrow vectors, and one linear map takes them to the width of
the blocks. *Shared parameters*: the same block runs in every layer; in general there are groups,
each of which runs for an equal stretch of the layers. *Sentence order*: in place of BERT's second
objective, the pooled vector must tell whether two consecutive segments were swapped.

Version 2 was taught longer, on more text and without dropout.
"""

from typing import Any

from zoo.nn.encoder import Encoder, MLMWithPairHead, make_blocks, make_embeddings
from zoo.nn.factory import ModelFactory, ModelParts
from zoo.nn.heads import LinearHead
from zoo_albert.config import AlbertConfig


class Pretraining(MLMWithPairHead):
    """Both objectives: the missing pieces, and whether two segments were swapped."""

    pair_head, pair_output = "order", "sop_logits"


class AlbertFactory(ModelFactory):
    """The usual parts around shared blocks, and the paper's two objectives."""

    def build_head(self, head: str) -> ModelParts:
        """See ``ModelFactory``."""
        if head == "pretraining":
            swapped = LinearHead(self.width, len(self.config.labels), self.dropout)
            return self.with_pair_head(Pretraining, swapped)
        return super().build_head(head)

    def backbone(self) -> dict[str, Any]:
        """See ``ModelFactory``."""
        config = self.config
        return {
            "embeddings": make_embeddings(config, project=True),
            "layers": make_blocks(config, count=config.num_groups * config.blocks_in_group),
            "order": config.order,
        }


def build(config: AlbertConfig, head: str) -> Encoder:
    """Return a model with fresh weights."""
    return AlbertFactory(config).build(head)
