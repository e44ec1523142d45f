"""Attention in training on CPUs, for groups of documents of similar length."""

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakIdKeyDictionary

from zoo.nn.dtypes import at_least_float32
from zoo.nn.kernels.attention_blocks import (
    SCORES_AT_ONCE,
    gradient_of_scores,
    kept,
    later_keys,
    marked_weights,
)
from zoo.nn.kernels.dropout import keep_factor
from zoo.nn.packed_attention import DocumentOffsets

# Estimate of the number of scores that take as long to compute as the calls for one more group.
SCORES_OF_A_GROUP = 1 << 15


class Stretches(NamedTuple):
    """Adjacent tokens of the flattened rows, for each document."""

    starts: Tensor  # (documents,), int64
    lengths: Tensor  # (documents,), int64

    @classmethod
    def of(cls, offsets: Tensor) -> "Stretches":
        """Return the stretches between offsets, (documents + 1,)."""
        return cls(offsets[:-1].long(), offsets.diff().long())

    def select(self, documents: list[int]) -> "Stretches":
        """Return the stretches of some documents."""
        return Stretches(self.starts[documents], self.lengths[documents])

    def padded(self) -> tuple[Tensor, Tensor]:
        """Return the tokens, (documents, longest), the last one repeated, and which are padding."""
        places = torch.arange(int(self.lengths.max()))
        last = self.lengths[:, None] - 1
        return self.starts[:, None] + places.minimum(last), places > last


@dataclass(frozen=True)
class Block:
    """Heads of documents of similar length, as matrices of the same size."""

    matrices: int  # number of documents times heads in the block
    queries: int  # number of queries in each matrix
    keys: int  # number of keys in each matrix
    first_query: int  # index of the first query in ``VectorLayout.matrices_of``
    first_key: int  # index of the first key there
    padding: Tensor | None  # (matrices, 1, keys), bool: True for keys that a document does not have

    def of_queries(self, vectors: Tensor) -> Tensor:
        """Return the matrices, (matrices, queries, size), among the vectors of all."""
        return self._part(vectors, self.first_query, self.queries)

    def of_keys(self, vectors: Tensor) -> Tensor:
        """Return the matrices, (matrices, keys, size), among the vectors of all."""
        return self._part(vectors, self.first_key, self.keys)

    def _part(self, vectors: Tensor, first: int, height: int) -> Tensor:
        part = vectors[first : first + self.matrices * height]
        return part.view(self.matrices, height, vectors.shape[-1])


@dataclass(frozen=True)
class VectorLayout:
    """How the vectors of tokens and heads are copied to the matrices of all groups, and back."""

    to_matrices: Tensor  # (vectors of matrices,), int64: the vector of a token and head
    is_padding: Tensor  # (vectors of matrices,), bool: where that vector does not count
    to_tokens: Tensor  # (tokens * heads,), int64: the vector of a matrix, or the one after the last

    @classmethod
    def of(cls, groups: Iterable[Stretches], tokens: int, heads: int) -> "VectorLayout":
        """Return the layout of the matrices of groups, one after the other."""
        head = torch.arange(heads)[:, None]
        vectors = [torch.empty(0, dtype=torch.int64)]  # there may be no groups
        paddings = [torch.empty(0, dtype=torch.bool)]
        for group in groups:
            of_group, padding = group.padded()
            vectors.append((of_group[:, None] * heads + head).flatten())
            paddings.append(padding[:, None].expand(-1, heads, -1).flatten())
        to_matrices = torch.cat(vectors)
        is_padding = torch.cat(paddings)
        to_tokens = torch.full((tokens * heads,), len(to_matrices))
        to_tokens[to_matrices[~is_padding]] = (~is_padding).nonzero()[:, 0]
        return cls(to_matrices, is_padding, to_tokens)

    def matrices_of(self, x: Tensor) -> Tensor:
        """Return the vectors of all matrices, (vectors, size), of (batch, heads, tokens, size)."""
        return x.transpose(1, 2).reshape(-1, x.shape[-1]).index_select(0, self.to_matrices)

    def new_matrices(self, like: Tensor) -> Tensor:
        """Return vectors of matrices to be filled, and a zero, (vectors + 1, size)."""
        vectors = like.new_empty(len(self.to_matrices) + 1, like.shape[-1])
        vectors[-1] = 0
        return vectors

    def tokens_of(self, vectors: Tensor, shape: torch.Size) -> Tensor:
        """Return a tensor of a shape, (batch, heads, tokens, size), of the vectors of matrices."""
        batch, heads, tokens, _ = shape
        # a token's heads are side by side in memory, as a linear layer reads them
        by_token = vectors.index_select(0, self.to_tokens)
        return by_token.view(batch, tokens, heads, vectors.shape[-1]).transpose(1, 2)


class DocumentGroups(NamedTuple):
    """Documents of similar length, whose attention is computed by the same calls."""

    queries: VectorLayout
    keys: VectorLayout
    # Each block is small enough that its scores stay in a core's cache.
    blocks: list[Block]


# Offsets of documents -> numbers of heads and of more keys -> groups, as long as the offsets exist.
_groups: MutableMapping[Tensor, dict[tuple[int, int], DocumentGroups]] = WeakIdKeyDictionary()


def groups_of_documents(documents: DocumentOffsets, heads: int) -> DocumentGroups:
    """Return the groups of documents; the layers of a model share them."""
    made = _groups.setdefault(documents.offsets, {})
    key = heads, documents.more_keys
    if key not in made:
        made[key] = group_documents(documents.offsets, documents.offsets_of_keys, heads)
    return made[key]


def group_documents(offsets: Tensor, offsets_of_keys: Tensor, heads: int) -> DocumentGroups:
    """Return groups of documents.

    Args:
        offsets: the first query of each document, and the number of all, (documents + 1,).
        offsets_of_keys: the same of the keys. Each document has some; without queries, it is in no
            group.
        heads: number of heads.
    """
    of_queries = Stretches.of(offsets)
    of_keys = Stretches.of(offsets_of_keys)
    lengths = zip(of_queries.lengths.tolist(), of_keys.lengths.tolist(), strict=True)
    documents = list(_similar_documents(list(lengths), SCORES_OF_A_GROUP // heads))
    queries = [of_queries.select(group) for group in documents]
    keys = [of_keys.select(group) for group in documents]
    layout_of_keys = VectorLayout.of(keys, int(offsets_of_keys[-1]), heads)
    if offsets is offsets_of_keys:
        layout_of_queries = layout_of_keys
    else:
        layout_of_queries = VectorLayout.of(queries, int(offsets[-1]), heads)
    return DocumentGroups(layout_of_queries, layout_of_keys, list(_blocks(queries, keys, heads)))


def _similar_documents(lengths: list[tuple[int, int]], most_padding: int) -> Iterator[list[int]]:
    """Yield groups of documents, longest first, given their numbers of queries and keys."""
    # ``most_padding``: pairs of a query and a key that a group has more than its documents have
    with_queries = (document for document, (queries, _) in enumerate(lengths) if queries)
    by_length = sorted(with_queries, key=lambda document: lengths[document][::-1], reverse=True)
    group: list[int] = []
    most_queries = most_keys = pairs = 0
    for document in by_length:
        queries, keys = lengths[document]
        most_queries = max(most_queries, queries)
        pairs += queries * keys
        if group and (len(group) + 1) * most_queries * most_keys - pairs > most_padding:
            yield group
            group = []
        if not group:
            most_queries = queries
            most_keys = keys
            pairs = queries * keys
        group.append(document)
    if group:
        yield group


def _blocks(queries: list[Stretches], keys: list[Stretches], heads: int) -> Iterator[Block]:
    """Yield the blocks of groups, which are given by their queries and their keys."""
    first_query = first_key = 0
    for of_queries, of_keys in zip(queries, keys, strict=True):
        most_queries = int(of_queries.lengths.max())
        tokens, is_padding = of_keys.padded()
        documents, most_keys = tokens.shape
        padding = is_padding[:, None].expand(-1, heads, -1).reshape(-1, 1, most_keys)
        step = max(1, SCORES_AT_ONCE // (most_queries * most_keys))
        for first in range(0, documents * heads, step):
            matrices = min(step, documents * heads - first)
            of_block = padding[first : first + matrices]
            yield Block(
                matrices,
                most_queries,
                most_keys,
                first_query,
                first_key,
                of_block if of_block.any() else None,
            )
            first_query += matrices * most_queries
            first_key += matrices * most_keys


def attend_in_groups(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: DocumentGroups,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(q k^T scale) v within documents, (batch, heads, queries, head_size)."""
    # q: (batch, heads, queries, head_size); k, v: (batch, heads, keys, head_size). In the result,
    # the heads of a token are adjacent in memory.
    # A call for each document takes longer than its products when documents are sentences. They
    # are padded to the longest of a group instead, and all of its products are one call.
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return _GroupAttention.apply(q, k, v, groups, causal, dropout, scale)  # type: ignore[no-any-return, no-untyped-call]


class _GroupAttention(torch.autograd.Function):
    """Attention that keeps the weights of each block, negative where they are dropped."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        groups: DocumentGroups,
        causal: bool,
        dropout: float,
        scale: float,
    ) -> Tensor:
        ctx.groups = groups
        ctx.scale = scale
        ctx.dropout = dropout
        ctx.shapes = q.shape, k.shape
        inputs = (
            groups.queries.matrices_of(q),
            groups.keys.matrices_of(k),
            groups.keys.matrices_of(v),
        )
        queries, keys, values = map(at_least_float32, inputs)
        mixed = groups.queries.new_matrices(values)
        saved = []
        with torch.autocast("cpu", enabled=False):
            for block in groups.blocks:
                scores = _product(
                    block.of_queries(queries), block.of_keys(keys).transpose(1, 2), scale
                )
                if causal:
                    scores.masked_fill_(later_keys(scores), -torch.inf)
                elif block.padding is not None:
                    scores.masked_fill_(block.padding, -torch.inf)
                weights = marked_weights(scores, dropout)
                saved.append(weights.to(v.dtype))
                block.of_queries(mixed).baddbmm_(
                    kept(weights, dropout),
                    block.of_keys(values),
                    beta=0,
                    alpha=keep_factor(dropout),
                )
        ctx.save_for_backward(*inputs, *saved)
        return groups.queries.tokens_of(mixed, q.shape).to(v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        inputs = ctx.saved_tensors[:3]
        saved = ctx.saved_tensors[3:]
        queries, keys, values = map(at_least_float32, inputs)
        layout: DocumentGroups = ctx.groups
        factor = keep_factor(ctx.dropout)
        gradient = at_least_float32(layout.queries.matrices_of(gradients[0]))
        gradient.masked_fill_(layout.queries.is_padding[:, None], 0)
        of_queries = layout.queries.new_matrices(queries)
        of_keys, of_values = layout.keys.new_matrices(keys), layout.keys.new_matrices(values)
        for block, weights in zip(layout.blocks, saved, strict=True):
            of_output = block.of_queries(gradient)
            of_weights = _product(of_output, block.of_keys(values).transpose(1, 2), factor)
            weights = weights.to(of_weights.dtype)
            kept_weights = kept(weights, ctx.dropout)
            block.of_keys(of_values).baddbmm_(
                kept_weights.transpose(1, 2), of_output, beta=0, alpha=factor
            )
            of_scores = gradient_of_scores(of_weights, weights, ctx.dropout)
            block.of_queries(of_queries).baddbmm_(
                of_scores, block.of_keys(keys), beta=0, alpha=ctx.scale
            )
            block.of_keys(of_keys).baddbmm_(
                of_scores.transpose(1, 2), block.of_queries(queries), beta=0, alpha=ctx.scale
            )
        shape_of_queries, shape_of_keys = ctx.shapes
        of_inputs = (
            layout.queries.tokens_of(of_queries, shape_of_queries),
            layout.keys.tokens_of(of_keys, shape_of_keys),
            layout.keys.tokens_of(of_values, shape_of_keys),
        )
        return (*(x.to(inputs[0].dtype) for x in of_inputs), *[None] * 4)


def _product(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """Return x y times a factor, (matrices, m, n)."""
    return x.new_empty(*x.shape[:-1], y.shape[-1]).baddbmm_(x, y, beta=0, alpha=factor)
