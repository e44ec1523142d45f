"""Squared differences of the mean last hidden states of texts."""

from torch import Tensor

from zoo.distillation.losses.base import EmbeddingLoss, Layers, Side, distillation_loss
from zoo.distillation.outputs import ModelOutput
from zoo.overrides import override


@distillation_loss("sentence-mse")
class SentenceMSE(EmbeddingLoss):
    """Squared differences of the mean last hidden states of texts."""

    # This is the loss of Reimers and Gurevych 2020, arXiv:2004.09813, section 2, where student and
    # teacher have different tokenizers. The embedding of a document is the mean over its tokens,
    # including special ones.

    @override
    def captured(self, side: Side) -> Layers:
        return {"hidden": {-1}}

    @override
    def embeddings(self, output: ModelOutput) -> Tensor:
        return output.text_embeddings()
