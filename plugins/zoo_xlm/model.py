"""XLM and FlauBERT.

Lample and Conneau 2019, "Cross-lingual Language Model Pretraining", arXiv:1901.07291; Le et al.
2020, "FlauBERT: Unsupervised Language Model Pre-training for French", arXiv:1912.05372.

BERT's blocks, with embeddings of languages in place of segment types, and output embeddings
without a layer before them. FlauBERT may have norms before attention and feed-forward network, of
which none follows the last block, and may skip blocks in training.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from zoo.nn.encoder import Classifier, Encoder, MaskedLM, QuestionAnswering
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead, make_blocks, make_embeddings
from zoo.nn.heads import FirstTokenPooler, LinearHead, OutputEmbeddings
from zoo.nn.languages import LanguageEmbeddings, LanguageInputs
from zoo.nn.layers.init import init_weights
from zoo.nn.transformer import PostNormBlock, PreNormBlock
from zoo.overrides import override
from zoo.weights import sinusoidal_positions
from zoo_xlm.config import XLMConfig


class XLMEncoder(LanguageInputs):
    """The backbone."""


class XLMLM(LanguageInputs, MaskedLM):
    """Masked language modelling."""


class XLMClassifier(LanguageInputs, Classifier):
    """Classification of texts and tokens."""


class XLMQuestionAnswering(LanguageInputs, QuestionAnswering):
    """Extractive question answering."""


class XLMFactory(ModelFactory):
    """The models of the family."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": XLMEncoder,
        "masked-lm": XLMLM,
        "sequence-classification": XLMClassifier,
        "token-classification": XLMClassifier,
        "question-answering": XLMQuestionAnswering,
    }

    @override
    def build(self, head: str) -> Encoder:
        model = super().build(head)
        embeddings: Any = model.embeddings
        init_weights(embeddings, std=self.config.embedding_range, truncated=False)
        if self.config.sinusoidal_positions:
            table = sinusoidal_positions(self.config.max_positions, self.width, interleaved=True)
            with torch.no_grad():
                embeddings.positions.weight.copy_(torch.from_numpy(table))
        return model

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        return {
            "embeddings": make_embeddings(
                config, LanguageEmbeddings, num_languages=config.language_rows
            ),
            "layers": make_blocks(config, PreNormBlock if config.pre_norm else PostNormBlock),
            "layerdrop": config.layerdrop,
        }

    @override
    def masked_lm_head(self) -> nn.Module:
        config = self.config
        return OutputEmbeddings(
            hidden_size=self.width,
            vocab_size=config.vocab_size,
            tied=config.tie_embeddings,
            bias=True,
        )

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        return FirstTokenPooler(), LinearHead(self.width, outputs, self.dropout)

    @override
    def token_head(self, outputs: int) -> nn.Module:
        return LinearHead(self.width, outputs, self.config.dropout)


def build(config: XLMConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return XLMFactory(config).build(head)
