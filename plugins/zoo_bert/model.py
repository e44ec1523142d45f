"""BERT: Bidirectional Encoder Representations from Transformers.

Devlin, Chang, Lee and Toutanova 2018, "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding", arXiv:1810.04805.

A text, or a pair of texts, is split into word pieces and framed as
``[CLS] first [SEP] second [SEP]``. The input embedding of a token is the sum of token, position
and segment embeddings (figure 2). A stack of Transformer encoder blocks follows, with a layer
norm after each residual sum, in which every token attends to all others (section 3).

There are two pretraining objectives (section 3.1). *Masked LM*: some tokens are masked, and the
model predicts them from their hidden state. *Next sentence prediction*: the pooled hidden state of
``[CLS]`` is classified by whether the second text followed the first. StructBERT (Wang et al. 2019,
arXiv:1908.04577) has the same model with three classes of pairs. For a downstream task, one
linear layer replaces the pretraining heads (figure 4): on the pooled state to classify texts, on
each token's state to classify tokens, and with two outputs per token for question answering.

The forward pass: ``Encoder`` and its subclasses in ``zoo.nn.encoder``, embeddings and blocks in
``zoo.nn.transformer``, heads in ``zoo.nn.heads``.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import nn

from zoo.nn.encoder import Encoder, MLMWithPairHead
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead
from zoo.overrides import override
from zoo_bert.config import PAIR_CLASSES, BertConfig


class BertPretraining(MLMWithPairHead):
    """Masked language modelling and next sentence prediction."""

    pair_head = "next_sentence"
    pair_output = "seq_relationship_logits"


class BertFactory(ModelFactory):
    """The default models of encoders, and ``Pretraining``."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **ModelFactory.model_classes,
        "pretraining": BertPretraining,
        "structural-pretraining": BertPretraining,
    }

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        if head in PAIR_CLASSES:
            next_sentence = nn.Linear(self.width, PAIR_CLASSES[head])
            return self.mlm_and_pair_head(BertPretraining.pair_head, next_sentence)
        return super().pooler_and_head(head)


def build(config: BertConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights, as in the released code."""
    return BertFactory(config).build(head)
