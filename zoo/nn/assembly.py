"""How the models of a family of text encoders are put together: a trunk, and what reads it."""

from typing import Any, ClassVar

from torch import nn

from zoo.nn.encoder import (
    Classifier,
    Encoder,
    MaskedLM,
    MultipleChoice,
    PairedLM,
    QuestionAnswering,
    blocks,
    embeddings,
    masked_token_head,
)
from zoo.nn.heads import LinearHead, MaskedTokenHead, Pooler
from zoo.nn.init import init_weights

Pooled = tuple[nn.Module, nn.Module]  # what makes one vector of a text, and what reads that
Reader = tuple[type[Encoder], nn.Module | None, nn.Module | None]  # the class, pooler and head


class Assembly:
    """The parts of a family's models; here the most common ones. A family overrides its own.

    Args:
        config: an ``EncoderConfig``.

    Attributes:
        config: the same.
        width: of the blocks.
        dropout: before classifiers: ``classifier_dropout`` of the configuration, if it has one,
            and else ``dropout``.
        trunk_type: the family's own trunk, which every class of ``zoo.nn.encoder`` stands on.
    """

    trunk_type: ClassVar[type[Encoder]] = Encoder

    def __init__(self, config: Any) -> None:
        self.config, self.width = config, config.hidden_size
        own = getattr(config, "classifier_dropout", None)
        self.dropout = config.dropout if own is None else own

    def build(self, head: str) -> Encoder:
        """Return a model with fresh weights.

        Raises:
            ValueError: the family has no such head.
        """
        trunk = self.trunk()
        kind, pooler, top = self.reader(head)
        model = _standing_on(self.trunk_type, kind)(**trunk, pooler=pooler, head=top)
        init_weights(model, std=self.config.initializer_range)
        return model

    def reader(self, head: str) -> Reader:
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
                return MaskedLM, None, self.masked()
            case "sequence-classification":
                return Classifier, *self.text(labels)
            case "multiple-choice":
                return MultipleChoice, *self.choice()
            case "token-classification":
                return Classifier, None, self.tokens(labels)
            case "question-answering":
                return QuestionAnswering, None, self.answers()
        raise ValueError(f"{type(self.config).__name__} has no head {head!r}")

    def trunk(self) -> dict[str, Any]:
        """Return the arguments of the trunk that are the same for every head; here those of
        ``Encoder``, and the configuration for a family's own.
        """
        if self.trunk_type is not Encoder:
            return {"config": self.config}
        return {"embeddings": embeddings(self.config), "layers": blocks(self.config)}

    def pooler(self) -> nn.Module:
        """Return what makes one vector of a text."""
        return Pooler(self.width)

    def masked(self) -> MaskedTokenHead:
        """Return what scores masked tokens."""
        return masked_token_head(self.config)

    def text(self, outputs: int) -> Pooled:
        """Return what classifies texts."""
        return self.pooler(), LinearHead(self.width, outputs, self.dropout)

    def choice(self) -> Pooled:
        """Return what scores each of several texts."""
        return self.text(1)

    def tokens(self, outputs: int) -> nn.Module:
        """Return what classifies tokens."""
        return LinearHead(self.width, outputs, self.dropout)

    def answers(self) -> nn.Module:
        """Return what scores each token as the start and as the end of an answer."""
        return LinearHead(self.width, 2)

    def paired(self, kind: type[PairedLM], scores: nn.Module) -> Reader:
        """Return what reads masked tokens, and of two texts whether they belong together.

        Args:
            kind: the class.
            scores: the pooler's vector -> the scores of a pair.
        """
        head = self.masked()
        head.add_module(kind.pair_head, scores)
        return kind, self.pooler(), head


def _standing_on(trunk: type[Encoder], kind: type[Encoder]) -> type[Encoder]:
    """Return the class that reads as ``kind`` does what ``trunk`` says of a text."""
    for one, other in ((kind, trunk), (trunk, kind)):
        if issubclass(one, other):
            return one
    return type(kind.__name__, (kind, trunk), {"__doc__": kind.__doc__})
