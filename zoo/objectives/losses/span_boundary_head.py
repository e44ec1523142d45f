"""The head that predicts tokens of a span from its boundaries."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.heads import VocabularyProjection

POSITION_SIZE = 200


class SpanBoundaryHead(nn.Module):
    """Predicts a token of a span from the hidden states around the span."""

    # Joshi et al. 2020, "SpanBERT: Improving Pre-training by Representing and Predicting Spans",
    # arXiv:1907.10529, section 3.2: each token of a masked span is predicted from the hidden states
    # of the two tokens around the span and its position in the span, by two layers with GeLU and
    # layer norm; logits are products with the token embeddings. Further details follow the released
    # code (``BertPairTargetPredictionHead``, ``span_masking``): position embeddings have size 200,
    # only the first 20 tokens of a span are predicted, and a span at either end of a text has no
    # boundary.
    #
    # The boundary head is only used for pretraining: the final model does not have it.

    def __init__(
        self,
        hidden_size: int,
        embedding_size: int,
        vocab_size: int,
        layer_norm_eps: float,
        *,
        max_span: int,
    ) -> None:
        super().__init__()
        self.positions = nn.Embedding(max_span, POSITION_SIZE)
        self.inner = nn.Linear(2 * hidden_size + POSITION_SIZE, hidden_size)
        self.inner_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.outer = nn.Linear(hidden_size, embedding_size)
        self.outer_norm = nn.LayerNorm(embedding_size, eps=layer_norm_eps)
        self.bias = nn.Parameter(self.outer.weight.new_zeros(vocab_size))

    def forward(
        self, left: Tensor, right: Tensor, offsets: Tensor, table: Tensor
    ) -> VocabularyProjection:
        """Return the projection to the logits, (n, vocabulary).

        Args:
            left: hidden states before the span, (n, hidden).
            right: hidden states after the span, (n, hidden).
            offsets: position of the token in the span, from 0, (n,), int64.
            table: token embeddings, (vocabulary, embedding).
        """
        x = torch.cat([left, right, self.positions(offsets)], dim=-1)
        x = self.inner_norm(F.gelu(self.inner(x)))
        x = self.outer_norm(F.gelu(self.outer(x)))
        return VocabularyProjection(x, table, self.bias)


class ModelWithSBO(nn.Module):
    """A masked language model with a span-boundary head."""

    def __init__(self, model: nn.Module, boundaries: SpanBoundaryHead) -> None:
        super().__init__()
        self.model = model
        self.boundary_head = boundaries
