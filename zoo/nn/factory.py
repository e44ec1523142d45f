"""How the models of a family of text encoders are put together: a trunk, and what reads it."""

from typing import Any, ClassVar

from torch import nn

from zoo.nn.encoder import (
    Classifier,
    Encoder,
    MaskedLM,
    MLMWithPairHead,
    MultipleChoice,
    QuestionAnswering,
    make_blocks,
    make_embeddings,
    make_mlm_head,
)
from zoo.nn.heads import LinearHead, MLMHead, Pooler
from zoo.nn.layers.init import init_weights

Pooled = tuple[nn.Module, nn.Module]  # what makes one vector of a text, and what reads that
ModelParts = tuple[type[Encoder], nn.Module | None, nn.Module | None]  # the class, pooler and head


class ModelFactory:
    """The parts of a family's models; here the most common ones. A family overrides its own.

    Args:
        config: an ``EncoderConfig``.

    Attributes:
        config: the same.
        width: of the blocks.
        dropout: before classifiers: ``classifier_dropout`` of the configuration, if it has one,
            and else ``dropout``.
        backbone_type: the family's own trunk, which every class of ``zoo.nn.encoder`` stands on.
    """

    backbone_type: ClassVar[type[Encoder]] = Encoder

    def __init__(self, config: Any) -> None:
        self.config, self.width = config, config.hidden_size
        classifier_dropout = getattr(config, "classifier_dropout", None)
        self.dropout = config.dropout if classifier_dropout is None else classifier_dropout

    def build(self, head: str) -> Encoder:
        """Return a model with fresh weights.

        Raises:
            ValueError: the family has no such head.
        """
        backbone = self.backbone()
        model_type, pooler, top = self.build_head(head)
        model = _with_backbone(self.backbone_type, model_type)(**backbone, pooler=pooler, head=top)
        init_weights(model, std=self.config.initializer_range)
        return model

    def build_head(self, head: str) -> ModelParts:
        """Return what reads the trunk for a head. A family with more heads adds them.

        Raises:
            ValueError: there is no such head.
        """
        labels = len(self.config.labels)
        match head:
            case "none":
                pooled = getattr(self.config, "pooler", False)
                return Encoder, self.pooler() if pooled else None, None
            case "masked-lm":
                return MaskedLM, None, self.masked_lm_head()
            case "sequence-classification":
                return Classifier, *self.sequence_head(labels)
            case "multiple-choice":
                return MultipleChoice, *self.choice_head()
            case "token-classification":
                return Classifier, None, self.token_head(labels)
            case "question-answering":
                return QuestionAnswering, None, self.span_head()
        raise ValueError(f"{type(self.config).__name__} has no head {head!r}")

    def backbone(self) -> dict[str, Any]:
        """Return the arguments of the trunk that are the same for every head; here those of
        ``Encoder``, and the configuration for a family's own.
        """
        if self.backbone_type is not Encoder:
            return {"config": self.config}
        return {"embeddings": make_embeddings(self.config), "layers": make_blocks(self.config)}

    def pooler(self) -> nn.Module:
        """Return what makes one vector of a text."""
        return Pooler(self.width)

    def masked_lm_head(self) -> MLMHead:
        """Return what scores masked tokens."""
        return make_mlm_head(self.config)

    def sequence_head(self, outputs: int) -> Pooled:
        """Return what classifies texts."""
        return self.pooler(), LinearHead(self.width, outputs, self.dropout)

    def choice_head(self) -> Pooled:
        """Return what scores each of several texts."""
        return self.sequence_head(1)

    def token_head(self, outputs: int) -> nn.Module:
        """Return what classifies tokens."""
        return LinearHead(self.width, outputs, self.dropout)

    def span_head(self) -> nn.Module:
        """Return what scores each token as the start and as the end of an answer."""
        return LinearHead(self.width, 2)

    def with_pair_head(self, kind: type[MLMWithPairHead], scores: nn.Module) -> ModelParts:
        """Return what reads masked tokens, and of two texts whether they belong together.

        Args:
            kind: the class.
            scores: the pooler's vector -> the scores of a pair.
        """
        head = self.masked_lm_head()
        head.add_module(kind.pair_head, scores)
        return kind, self.pooler(), head


def _with_backbone(backbone: type[Encoder], kind: type[Encoder]) -> type[Encoder]:
    """Return the class that reads as ``kind`` does what ``trunk`` says of a text."""
    for one, other in ((kind, backbone), (backbone, kind)):
        if issubclass(one, other):
            return one
    return type(kind.__name__, (kind, backbone), {"__doc__": kind.__doc__})
