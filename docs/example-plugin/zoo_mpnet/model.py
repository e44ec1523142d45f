"""MPNet: Masked and Permuted Pre-training for Language Understanding.

Song, Tan, Qin, Lu and Liu 2020, arXiv:2004.09297. The paper is about an objective; the model that
it leaves behind is a Transformer encoder that differs from the first ones in three places:

* there are no segments: a token's vector is the sum of what it is and where it stands;
* places are counted over real tokens alone, and the first has the number ``PAD + 1``;
* every head adds to its scores a learned number for how far the key is from the query, the same
  in all blocks. Distances share 32 buckets, 16 to each side: one for each distance below 8, and
  then each wider than the last by the square root of two (the scheme of Raffel et al. 2019,
  arXiv:1910.10683, section 2.1).
"""

import torch
from torch import Tensor, nn

from zoo.nn.encoder import make_blocks, make_embeddings, make_mlm_head
from zoo.nn.heads import Pooler
from zoo.nn.layers.init import init_weights
from zoo.nn.transformer import Embeddings, packed_mask, padding_mask
from zoo_mpnet.config import BUCKETS, PAD, MPNetConfig

# Where the wide buckets start: 8 times the powers of the root, rounded up. Whole numbers, because
# the logarithm that they stand for is rounded differently from one backend to the next.
_NEAR, _FAR = 8, (12, 16, 23, 32, 46, 64, 91)


class CountedEmbeddings(Embeddings):
    """Embeddings whose positions count the real tokens of each row."""

    def default_positions(self, input_ids: Tensor) -> Tensor:
        """Embed where each token stands, (batch, tokens, hidden); padding is at ``PAD``."""
        real = input_ids != PAD
        return self.positions(real.cumsum(dim=1) * real + PAD)  # type: ignore[no-any-return]

    def embed_positions(self, position_ids: Tensor) -> Tensor:
        """Embed positions that are counted from 0."""
        return super().embed_positions(position_ids + PAD + 1)


def distance_bias(table: nn.Embedding, tokens: int) -> Tensor:
    """Return what attention adds to its scores: (1, heads, queries, keys)."""
    places = torch.arange(tokens, device=table.weight.device)
    distance = places - places[:, None]  # (queries, keys), positive to the right
    far = distance.abs()
    bucket = far.clamp(max=_NEAR) + sum((far >= start).long() for start in _FAR)
    bucket = bucket + (distance > 0) * (BUCKETS // 2)
    return table(bucket).permute(2, 0, 1)[None]  # type: ignore[no-any-return]


class MPNet(nn.Module):
    """The trunk with its head: a pooler, scores for masked tokens, or none."""

    def __init__(self, config: MPNetConfig, head: str) -> None:
        super().__init__()
        self.embeddings = make_embeddings(config, CountedEmbeddings)
        self.relative_bias = nn.Embedding(BUCKETS, config.num_heads)
        self.layers = nn.ModuleList(make_blocks(config))
        self.pooler = Pooler(config.hidden_size) if head == "none" and config.pooler else None
        self.head = make_mlm_head(config, "gelu") if head == "masked-lm" else None
        init_weights(self, std=config.initializer_range)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Run trunk and head; both inputs are int64, (batch, tokens)."""
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
        """Score every token of the vocabulary: (..., hidden) to (..., vocabulary)."""
        assert self.head is not None, "only the masked-lm head scores tokens"
        return self.head(hidden, self.embeddings.tokens)  # type: ignore[no-any-return]


def build(config: MPNetConfig, head: str) -> MPNet:
    """Return a model with fresh weights."""
    return MPNet(config, head)
