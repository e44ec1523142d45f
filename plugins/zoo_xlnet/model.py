"""The models of XLNet: the backbone of ``zoo_xlnet.backbone`` with each head."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.decoder import last_token_index
from zoo.nn.encoder import Classifier, Encoder, MaskedLM, MultipleChoice, QuestionAnswering
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead
from zoo.nn.heads import DenseHead, LinearHead, VocabularyProjection, gather_rows
from zoo_xlnet.backbone import XLNetBackbone
from zoo_xlnet.beams import BeamHead, XLNetBeamQuestionAnswering
from zoo_xlnet.config import XLNetConfig
from zoo_xlnet.generation import XLNetGenerationMixin


class LMHead(nn.Module):
    """Logits against the token embeddings, with a bias.

    Args:
        vocab_size: number of tokens in the vocabulary.
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden: Tensor, embeddings: nn.Embedding) -> Tensor:
        """Return the logits: (..., hidden) to (..., vocabulary)."""
        return self.project(hidden, embeddings).logits()

    def project(self, hidden: Tensor, embeddings: nn.Embedding) -> VocabularyProjection:
        """Return the projection to the logits of (..., hidden)."""
        return VocabularyProjection(hidden, embeddings.weight, self.bias)


class XLNetLM(MaskedLM, XLNetGenerationMixin):
    """The language model. Of a token other than ``<mask>``, the logits depend on that token."""


class XLNetTextClassifier(Classifier, XLNetBackbone):
    """Classification of texts by the last token, ``<cls>``."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits, (batch, labels), for padding on either side."""
        hidden = self.encode_batch(input_ids, attention_mask, token_type_ids)
        last = last_token_index(input_ids, attention_mask, None)
        return self.outputs(gather_rows(hidden, last))


class XLNetMultipleChoice(MultipleChoice, XLNetTextClassifier):
    """Multiple choice: one logit for each text."""


class XLNetTokenClassifier(Classifier, XLNetBackbone):
    """Token classification."""


class XLNetQuestionAnswering(QuestionAnswering, XLNetBackbone):
    """Extractive question answering."""


class XLNetFactory(ModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": XLNetBackbone,
        "masked-lm": XLNetLM,
        "sequence-classification": XLNetTextClassifier,
        "multiple-choice": XLNetMultipleChoice,
        "token-classification": XLNetTokenClassifier,
        "question-answering": XLNetQuestionAnswering,
        "beam-question-answering": XLNetBeamQuestionAnswering,
    }

    def backbone_args(self) -> dict[str, Any]:
        """Return the configuration, from which ``XLNetBackbone`` builds its parts."""
        return {"config": self.config}

    def pooler_and_head(self, head: str) -> PoolerAndHead:
        """Return pooler and head of a model; see ``ModelFactory``."""
        if head == "masked-lm":
            return None, LMHead(self.config.vocab_size)
        if head == "beam-question-answering":
            return None, BeamHead(self.config)
        return super().pooler_and_head(head)

    def sequence_head(self, outputs: int) -> PoolerAndHead:
        """Return the head for classification of texts; the model selects the token."""
        dropout = self.config.classifier_dropout
        return None, DenseHead(self.width, outputs, act="tanh", inner_dropout=dropout)

    def token_head(self, outputs: int) -> nn.Module:
        """Return the head for token classification; the backbone's output has dropout."""
        return LinearHead(self.width, outputs)


_DRAWN = ("mask", "content_bias", "position_bias", "segment_bias", "segments")


def build(config: XLNetConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    model = XLNetFactory(config).build(head)
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2] in _DRAWN:
            nn.init.normal_(parameter, std=config.initializer_range)
    return model
