"""Squared differences of the mean last hidden states of texts."""

from typing import ClassVar

from zoo.distillation.losses.base import Layers, Side, TextEmbeddingLoss
from zoo.distillation.outputs import TextEmbeddings
from zoo.overrides import override


class SentenceMSE(TextEmbeddingLoss):
    """Squared differences of the mean last hidden states of texts.

    This is the loss of Reimers and Gurevych 2020, arXiv:2004.09813, section 2, where student and
    teacher have different tokenizers. The embedding of a document is the mean over its tokens,
    including special ones.
    """

    name: ClassVar[str] = "sentence-mse"
    summary: ClassVar[str] = "squared differences of the mean states of texts"

    @property
    @override
    def teacher_output(self) -> TextEmbeddings:
        return TextEmbeddings()

    @override
    def captured(self, side: Side) -> Layers:
        return {"hidden": {-1}}
