"""MPNet: Masked and Permuted Pre-training for Language Understanding.

Song, Tan, Qin, Lu and Liu 2020, arXiv:2004.09297. The paper is about an objective; its model is a
Transformer encoder that differs from the first ones in three points:

* there are no segment embeddings;
* positions count the tokens of a row that are not padding, from ``PAD + 1``;
* a learned bias for each head and distance of key and query is added to the attention scores, the
  same in all blocks. Distances share 32 buckets, 16 in each direction: one for each distance below
  8, then each wider than the one before by the square root of two (the scheme of Raffel et al.
  2019, arXiv:1910.10683, section 2.1).
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.encoder import packed_mask, padding_mask
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_mlm_head
from zoo.nn.heads import Pooler
from zoo.nn.layers.init import init_weights
from zoo.nn.transformer import Embeddings
from zoo_mpnet.config import BUCKETS, PAD, MPNetConfig

# First distances of the wide buckets: 8 times the powers of the root of two, rounded up. Integers,
# because backends round the logarithm that they replace differently.
_NEAR = 8
_FAR = (12, 16, 23, 32, 46, 64, 91)


class CountedEmbeddings(Embeddings):
    """Embeddings whose positions count the tokens of a row that are not padding."""

    def default_positions(self, input_ids: Tensor) -> Tensor:
        """Return the position embeddings of rows of one document, (batch, tokens, hidden)."""
        real = input_ids != PAD
        return self.positions(real.cumsum(dim=1) * real + PAD)  # type: ignore[no-any-return]

    def embed_positions(self, position_ids: Tensor) -> Tensor:
        """Return the embeddings of positions that count from 0."""
        return super().embed_positions(position_ids + PAD + 1)


def distance_bias(table: nn.Embedding, tokens: int) -> Tensor:
    """Return the bias of the attention scores, (1, heads, queries, keys)."""
    positions = torch.arange(tokens, device=table.weight.device)
    distance = positions - positions[:, None]  # (queries, keys), positive for later keys
    far = distance.abs()
    bucket = far.clamp(max=_NEAR) + sum((far >= start).long() for start in _FAR)
    bucket = bucket + (distance > 0) * (BUCKETS // 2)
    return table(bucket).permute(2, 0, 1)[None]  # type: ignore[no-any-return]


class MPNet(nn.Module):
    """The backbone with its head: a pooler, a masked-LM head, or none."""

    layer_inputs: ClassVar[tuple[str, ...]] = ("relative_bias",)

    def __init__(self, config: MPNetConfig, head: str) -> None:
        super().__init__()
        self.embeddings = make_embeddings(config, CountedEmbeddings)
        self.relative_bias = nn.Embedding(BUCKETS, config.num_heads)
        self.layers = nn.ModuleList(make_blocks(config))
        self.pooler = Pooler(config.hidden_size) if head == "none" and config.pooler else None
        self.head = make_mlm_head(config, "gelu") if head == "masked-lm" else None
        init_weights(self, std=config.initializer_range)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Run backbone and head; both inputs are int64, (batch, tokens)."""
        x = self.encode(input_ids, attention_mask)
        if self.head is not None:
            return {"logits": self.scores(x)}
        pooled = {} if self.pooler is None else {"pooler_output": self.pooler(x)}
        return {"last_hidden_state": x, **pooled}

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden state, (batch, tokens, hidden).

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
            position_ids: (batch, tokens), int64, from 0 in each document of a packed row.
            document_ids: (batch, tokens), int64: the document of each token of a packed row,
                counted from 1; 0 for padding. It takes the place of ``attention_mask``.
        """
        x: Tensor = self.embeddings(input_ids, position_ids=position_ids)
        bias = distance_bias(self.relative_bias, input_ids.shape[1])
        if document_ids is None:
            mask = padding_mask(attention_mask, x.dtype)  # (batch, 1, 1, keys)
        else:
            mask = packed_mask(document_ids, document_ids, x.dtype)  # (batch, 1, queries, keys)
        bias = bias if mask is None else bias + mask  # (batch, heads, queries, keys)
        for layer in self.layers:
            x = layer(x, bias)
        return x

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits over the vocabulary: (..., hidden) to (..., vocabulary)."""
        assert self.head is not None, "the head is not masked-lm"
        return self.head(hidden, self.embeddings.tokens)  # type: ignore[no-any-return]


def build(config: MPNetConfig, head: str) -> MPNet:
    """Return a model with randomly initialized weights."""
    return MPNet(config, head)
