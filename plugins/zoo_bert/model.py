"""BERT: Bidirectional Encoder Representations from Transformers.

Devlin, Chang, Lee and Toutanova 2018, "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding", arXiv:1810.04805.

The paper in short. A text, or a pair of texts, is cut into word pieces and framed as
``[CLS] first [SEP] second [SEP]``. Each token's vector is the sum of three learned embeddings:
which piece it is, where it stands, and whether it is in the first or the second text (figure 2).
A stack of Transformer encoder blocks follows, in which every token sees all others, to its left
and to its right (section 3); each block normalises after its residual sums.

Two objectives teach it (section 3.1). *Masked LM*: some pieces are hidden, and the vector at
such a place must tell the piece that was there. *Next sentence*: the vector of ``[CLS]``, sent
through the *pooler*, must tell whether the second text really followed the first. For a task,
the pretraining head gives way to one linear layer (figure 4): on the pooled vector to classify
a text, on each token's vector to label tokens, and with two outputs per token to score where an
answer starts and ends.

The parts are in ``zoo.nn``; this file says what BERT has of its own.
"""

from torch import nn

from zoo.nn.encoder import Encoder, MLMWithPairHead
from zoo.nn.factory import ModelFactory, ModelParts
from zoo_bert.config import BertConfig


class Pretraining(MLMWithPairHead):
    """Both objectives: the missing pieces, and whether the second text followed the first."""

    pair_head, pair_output = "next_sentence", "seq_relationship_logits"


class BertFactory(ModelFactory):
    """The usual parts, and the paper's two objectives."""

    def build_head(self, head: str) -> ModelParts:
        """See ``ModelFactory``."""
        if head == "pretraining":
            return self.with_pair_head(
                Pretraining, nn.Linear(self.width, 2)
            )  # it followed, it did not
        return super().build_head(head)


def build(config: BertConfig, head: str) -> Encoder:
    """Return a model with fresh weights, drawn as the paper's were."""
    return BertFactory(config).build(head)
