"""The parts of a Transformer: embeddings, attention, feed-forward networks and blocks.

Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.nn.kernels.attention import attend as attend
from zoo.nn.kernels.embedding import Embedding
from zoo.nn.kernels.onednn_linear import OneDnnLinear, linear
from zoo.nn.kernels.selected_queries import attend_from_positions, can_select_queries
from zoo.nn.layers.activations import activate, activation
from zoo.nn.layers.dropout import Dropout
from zoo.nn.layers.embedding import FixedEmbedding
from zoo.nn.packed_attention import DocumentOffsets
from zoo.overrides import override

# Classes of linear maps whose rows can be computed by themselves.
PLAIN_LINEAR = (nn.Linear, OneDnnLinear)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.nn.kv_cache import LayerCache
    from zoo.nn.local_blocks import LocalBlocks
    from zoo.nn.positions import Rotation
    from zoo.nn.sparse_blocks import BlockSparse


class Embeddings(nn.Module):
    """The sum of token, position and segment embeddings, with an optional norm.

    Args:
        vocab_size: number of tokens in the vocabulary; 0 for no table, see ``embed``.
        max_positions: number of positions, the longest input; 0 for no position embeddings.
        type_vocab_size: number of segment types; 0 for no segment embeddings.
        hidden_size: width of the embeddings.
        layer_norm_eps: epsilon of the layer norm; ``None`` for no norm.
        dropout: dropout probability of the sum.
        project_to: width of a linear map after dropout; ``None`` for no map.
        scale: factor of the token embeddings.
        rounds_scale: whether the factor is rounded to the dtype of the embeddings, which differs in
            half precision.
        position_offset: number of rows of the table of positions before the first position.
        position_table: values of positions that are not trained, (position_offset + max_positions,
            hidden), such as ``zoo.weights.sinusoidal_positions``; ``None`` for learned ones.
        dropout_before_norm: whether dropout is before the norm; else it follows the norm.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_positions: int,
        type_vocab_size: int,
        hidden_size: int,
        layer_norm_eps: float | None,
        dropout: float,
        project_to: int | None = None,
        scale: float = 1.0,
        rounds_scale: bool = False,
        position_offset: int = 0,
        position_table: "NDArray[np.float32] | None" = None,
        dropout_before_norm: bool = False,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.rounds_scale = rounds_scale
        self.position_offset = position_offset
        self.tokens: Any = None
        if vocab_size:
            self.tokens = Embedding(vocab_size, hidden_size)
        self.positions: Any = None
        if position_table is not None:
            self.positions = FixedEmbedding(position_table)
        elif max_positions:
            self.positions = nn.Embedding(position_offset + max_positions, hidden_size)
        self.types: nn.Embedding | None = None
        if type_vocab_size:
            self.types = nn.Embedding(type_vocab_size, hidden_size)
        self.norm: nn.LayerNorm | None = None
        if layer_norm_eps is not None:
            self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout)
        self.dropout_before_norm = dropout_before_norm
        self.project: nn.Linear | None = None
        if project_to is not None:
            self.project = nn.Linear(hidden_size, project_to)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the embeddings of tokens.

        Args:
            input_ids: (batch, tokens), int64.
            token_type_ids: (batch, tokens), int64; ``None`` for all 0.
            position_ids: (batch, tokens), int64, from 0 in each document of a packed row;
                ``None`` where each row is one document.

        Returns:
            (batch, tokens, hidden).

        Raises:
            ValueError: ``token_type_ids`` are given to a model without segment embeddings.
        """
        return self.embed(self.tokens, input_ids, token_type_ids, position_ids)

    def embed(
        self,
        tokens: nn.Module,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the embeddings of tokens by a table of tokens, such as another module's.

        For the other arguments, see ``forward``.
        """
        terms: list[Tensor] = []
        if self.positions is not None:
            if position_ids is None:
                terms.append(self.default_positions(input_ids))
            else:
                terms.append(self.embed_positions(position_ids))
        segments = self.embed_segments(token_type_ids)
        if segments is not None:
            terms.append(segments)
        x: Tensor = tokens(input_ids)
        if self.scale != 1.0 and self.rounds_scale:
            x = x * torch.tensor(self.scale, dtype=x.dtype, device=x.device)
        elif self.scale != 1.0:
            x = x * self.scale
        if terms:
            x = x + functools.reduce(torch.add, terms)
        if self.dropout_before_norm:
            x = self.dropout(x)
        if self.norm is not None:
            x = self.norm(x)
        if not self.dropout_before_norm:
            x = self.dropout(x)
        if self.project is not None:
            x = self.project(x)
        return x

    def embed_segments(self, token_type_ids: Tensor | None) -> Tensor | None:
        """Return the embeddings of segments, (batch, tokens, hidden) or (hidden,), if any.

        Raises:
            ValueError: ``token_type_ids`` are given to a model without segment embeddings.
        """
        if self.types is not None:
            if token_type_ids is None:
                # The row of type 0 is broadcast, which saves the lookup of (batch, tokens) vectors.
                return self.types.weight[0]
            return self.types(token_type_ids)  # type: ignore[no-any-return]
        if token_type_ids is not None:
            raise ValueError("token_type_ids are given, and this model has no segment embeddings")
        return None

    def default_positions(self, input_ids: Tensor) -> Tensor:
        """Return the position embeddings of rows of one document: 0, 1, 2, ...

        Returns:
            (tokens, hidden) or (batch, tokens, hidden).
        """
        table: Tensor = self.positions.weight
        start = self.position_offset
        return table[start : start + input_ids.shape[1]]  # A view, without a lookup.

    def has_packed_positions(self, input_ids: Tensor, attention_mask: Tensor) -> bool:
        """Return whether tokens have the same positions in packed rows as by default.

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: (batch, tokens), int64, padded on the right.
        """
        return type(self).default_positions is Embeddings.default_positions

    def embed_positions(self, position_ids: Tensor) -> Tensor:
        """Return the embeddings of positions, (batch, tokens), that count from 0."""
        return self.positions(position_ids + self.position_offset)  # type: ignore[no-any-return]


class CountedEmbeddings(Embeddings):
    """Embeddings whose positions count the tokens of a row that are not padding.

    Args:
        padding: the padding token, and the position of padding; ``padding + 1`` is the first
            position of a text.
        **options: arguments of ``Embeddings``.
    """

    def __init__(self, *, padding: int, **options: Any) -> None:
        super().__init__(**options)
        self.padding = padding

    @override
    def default_positions(self, input_ids: Tensor) -> Tensor:
        real = (input_ids != self.padding).long()
        numbers = (real.cumsum(1) + self.position_offset) * real
        return self.positions(numbers + self.padding)  # type: ignore[no-any-return]

    @override
    def has_packed_positions(self, input_ids: Tensor, attention_mask: Tensor) -> bool:
        # The text may have padding tokens, such as those that expand a query.
        return not bool(((input_ids == self.padding) & (attention_mask != 0)).any())

    @override
    def embed_positions(self, position_ids: Tensor) -> Tensor:
        return super().embed_positions(position_ids + self.padding + 1)


class Attention(nn.Module):
    """Multi-head attention without its input projections (arXiv:1706.03762, section 3.2).

    Args:
        num_heads: number of heads.
        head_size: width of a head.
        dropout: dropout probability of the attention weights.
        scale: factor of the attention scores; ``None`` for ``head_size ** -0.5``.
        cap: bound of the scaled scores, see ``zoo.nn.attention.softcap``; ``None`` for no bound.

    Attributes:
        out: the output projection, which a subclass sets.
    """

    out: nn.Linear

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        dropout: float,
        scale: float | None = None,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.heads = (num_heads, head_size)
        self.dropout = dropout
        self.scale = scale
        self.cap = cap

    def split(self, x: Tensor, parts: int) -> list[Tensor]:
        """Split a joint projection into its parts and their heads, as views.

        Args:
            x: (batch, tokens, parts * inner).
            parts: number of projections that were computed as one, such as 3 for q, k and v.

        Returns:
            ``parts`` tensors, (batch, heads, tokens, head_size).
        """
        return [
            part.unflatten(-1, self.heads).transpose(1, 2)  # type: ignore[no-untyped-call]
            for part in x.chunk(parts, dim=-1)
        ]

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: "Tensor | DocumentOffsets | LocalBlocks | BlockSparse | None",
        *,
        causal: bool = False,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return the output projection of softmax(q k^T scale + mask) v.

        Args:
            q: (batch, heads, queries, head_size).
            k: (batch, heads, keys, head_size).
            v: (batch, heads, keys, head_size).
            mask: added to the scores, broadcast to (batch, heads, queries, keys); the documents of
                packed rows; the blocks of local attention; or ``None``.
            causal: mask the keys that follow a query; queries and keys are the same tokens.
            positions: indices into the flattened queries, (n,), int64, of those to project;
                ``None`` for all.

        Returns:
            (batch, queries, hidden), or (n, hidden).
        """
        dropout = self.current_dropout
        x = attend(q, k, v, mask, causal=causal, dropout=dropout, scale=self.scale, cap=self.cap)
        (x,) = select_tokens(positions, x.transpose(1, 2).flatten(-2))
        return self.out(x)  # type: ignore[no-any-return]

    @property
    def current_dropout(self) -> float:
        """Dropout probability of the attention weights, 0 except in training."""
        return self.dropout if self.training else 0.0


class SelfAttention(Attention):
    """Multi-head self-attention.

    Args:
        hidden_size: width of input and output.
        num_heads: number of heads.
        dropout: dropout probability of the attention weights.
        causal: let a token attend only to itself and earlier tokens.
        scale: factor of the attention scores; ``None`` for ``head_size ** -0.5``.
        head_size: width of a head; ``None`` for ``hidden_size // num_heads``.
        bias: whether the linear maps have a bias.
        num_kv_heads: number of heads of keys and values, which divides ``num_heads``: consecutive
            heads share them (Ainslie et al. 2023, arXiv:2305.13245, section 2.2); ``None`` for
            ``num_heads``. A cache only has these heads.
        out_bias: whether the output projection has a bias; ``None`` for ``bias``.
        cap: see ``Attention``.
        qk_norm: makes the norm of queries and the norm of keys from their width, before they are
            rotated (Dehghani et al. 2023, arXiv:2302.05442, section 2.1); ``None`` for no norm.
        norms_heads: whether each head is normalized for itself, by the same norm; else all heads
            are normalized as one vector.

    Attributes:
        q_norm, k_norm: the norms of queries and keys, or ``None``.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        num_heads: int,
        dropout: float,
        causal: bool = False,
        scale: float | None = None,
        head_size: int | None = None,
        bias: bool = True,
        num_kv_heads: int | None = None,
        out_bias: bool | None = None,
        cap: float | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
        norms_heads: bool = True,
    ) -> None:
        size = head_size or hidden_size // num_heads
        super().__init__(num_heads, size, dropout, scale, cap)
        self.causal = causal
        inner = num_heads * size
        kv_heads = num_kv_heads or num_heads
        if num_heads % kv_heads:
            raise ValueError(f"{kv_heads} heads of keys and values do not divide {num_heads} heads")
        self.head_counts = (num_heads, kv_heads, kv_heads)
        self.qkv = nn.Linear(hidden_size, sum(self.head_counts) * size, bias=bias)
        self.out = nn.Linear(inner, hidden_size, bias=bias if out_bias is None else out_bias)
        self.norms_heads = norms_heads
        self.q_norm: nn.Module | None = None
        self.k_norm: nn.Module | None = None
        if qk_norm is not None:
            self.q_norm = qk_norm(size if norms_heads else inner)
            self.k_norm = qk_norm(size if norms_heads else kv_heads * size)

    def forward(
        self,
        x: Tensor,
        mask: "Tensor | DocumentOffsets | LocalBlocks | BlockSparse | None" = None,
        cache: "LayerCache | None" = None,
        rotation: "Rotation | None" = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Attend to the tokens of each row.

        Args:
            x: (batch, tokens, hidden).
            mask: added to the scores, broadcast to (batch, heads, queries, keys); or the result of
                ``Encoder.documents_mask``. In causal attention, it has to exclude later tokens
                itself, as ``causal_mask`` does.
            cache: keys and values of earlier tokens, extended by ``x``'s.
            rotation: rotation of queries and keys by their positions; cached keys are rotated.
            positions: indices into the flattened rows, (n,), int64, of the tokens to return;
                ``None`` for all.

        Returns:
            (batch, tokens, hidden), or (n, hidden).
        """
        reads_only_x = cache is None and rotation is None
        if positions is not None and reads_only_x and self._can_select_queries(x, mask):
            assert isinstance(mask, DocumentOffsets)
            return self._attend_from(positions, x, mask)
        joint = self.qkv(x)  # One product for queries, keys and values.
        num_heads, num_kv_heads, _ = self.head_counts
        if num_heads == num_kv_heads:
            q, k, v = self.split(joint, 3)
        else:
            heads = joint.unflatten(-1, (-1, self.heads[1])).transpose(1, 2)
            q, k, v = heads.split(self.head_counts, dim=1)
        q = self.normalize(self.q_norm, q)
        k = self.normalize(self.k_norm, k)
        if rotation is not None:
            q = rotation.apply(q)
            k = rotation.apply(k)
        if cache is not None:
            k, v = cache.extend(k, v)
        group_size = num_heads // num_kv_heads  # Heads of queries for one of keys and values.
        if group_size > 1:
            k = k[:, :, None].expand(-1, -1, group_size, -1, -1).flatten(1, 2)
            v = v[:, :, None].expand(-1, -1, group_size, -1, -1).flatten(1, 2)
        causal = self.causal and mask is None
        # A single token attends to all keys of a cache. The number of tokens is only read with a
        # cache, since an exported graph does not know it.
        if causal and cache is not None:
            causal = x.shape[1] > 1
        if positions is None:
            return self.attend(q, k, v, mask, causal=causal)
        return self.attend(q, k, v, mask, causal=causal, positions=positions)

    def _can_select_queries(self, x: Tensor, mask: Any) -> bool:
        """Return whether ``_attend_from`` computes the same here."""
        if not isinstance(mask, DocumentOffsets) or self.cap is not None:
            return False
        has_same_heads = len(set(self.head_counts)) == 1
        dropout = self.current_dropout
        return has_same_heads and can_select_queries(x, self.qkv.weight, mask, dropout=dropout)

    def _attend_from(self, positions: Tensor, x: Tensor, documents: DocumentOffsets) -> Tensor:
        """Return what some tokens attend to, (n, hidden), without the queries of the others."""
        x = x.flatten(0, 1)
        num_heads, head_size = self.heads
        sizes = [num_heads * head_size, 2 * num_heads * head_size]
        if type(self.qkv) in PLAIN_LINEAR:
            q_weight, kv_weight = torch.split(self.qkv.weight, sizes)
            q_bias = kv_bias = None
            if self.qkv.bias is not None:
                q_bias, kv_bias = torch.split(self.qkv.bias, sizes)
            q = linear(x.index_select(0, positions), q_weight, q_bias)
            kv = linear(x, kv_weight, kv_bias)
        else:
            q, kv = self.qkv(x).split(sizes, dim=-1)
            q = q.index_select(0, positions)
        k, v = self.split(kv[None], 2)
        (q,) = self.split(q[None], 1)
        q = self.normalize(self.q_norm, q)
        k = self.normalize(self.k_norm, k)
        mixed = attend_from_positions(
            q, k, v, positions, documents, dropout=self.current_dropout, scale=self.scale
        )
        return self.out(mixed.transpose(1, 2).flatten(-2)[0])  # type: ignore[no-any-return]

    def normalize(self, norm: nn.Module | None, x: Tensor) -> Tensor:
        """Return normalized queries or keys, (batch, heads, tokens, head_size)."""
        if norm is None:
            return x
        if self.norms_heads:
            return norm(x)  # type: ignore[no-any-return]
        joint = norm(x.transpose(1, 2).flatten(-2))
        return joint.unflatten(-1, (-1, self.heads[1])).transpose(1, 2)  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """The position-wise feed-forward network (arXiv:1706.03762, section 3.3).

    Args:
        hidden_size: width of input and output.
        intermediate_size: width between the linear maps.
        act: name of the activation function.
        bias: whether the linear maps have a bias.
        dropout: dropout probability of the input of the last linear map.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        intermediate_size: int,
        act: str,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.act = activation(act)
        self.up = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.down = nn.Linear(intermediate_size, hidden_size, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token: (batch, tokens, hidden) to the same shape."""
        return self.down(self.dropout(self.inner(self.up(x))))  # type: ignore[no-any-return]

    def inner(self, x: Tensor) -> Tensor:
        """Map the output of ``up`` to the input of ``down``, (batch, tokens, intermediate)."""
        return activate(self.act, x)


class GatedFeedForward(FeedForward):
    """A feed-forward network with a gate (Shazeer 2020, arXiv:2002.05202, equation 6).

    The first half of ``up`` is the input of the activation function, and the second half is
    multiplied by its output.
    """

    def __init__(
        self, *, hidden_size: int, intermediate_size: int, bias: bool = True, **options: Any
    ) -> None:
        super().__init__(
            hidden_size=hidden_size, intermediate_size=intermediate_size, bias=bias, **options
        )
        self.up = nn.Linear(hidden_size, 2 * intermediate_size, bias=bias)

    @override
    def inner(self, x: Tensor) -> Tensor:
        activated, linear = x.chunk(2, dim=-1)
        return activate(self.act, activated) * linear


class GLU(GatedFeedForward):
    """``GatedFeedForward`` with a sigmoid."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="sigmoid", **options)


class Bilinear(GatedFeedForward):
    """``GatedFeedForward`` without an activation function."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="linear", **options)


class ReGLU(GatedFeedForward):
    """``GatedFeedForward`` with ReLU."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="relu", **options)


class GEGLU(GatedFeedForward):
    """``GatedFeedForward`` with GELU."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="gelu", **options)


class SwiGLU(GatedFeedForward):
    """``GatedFeedForward`` with SiLU, that is Swish with a factor of 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="silu", **options)


def select_tokens(positions: Tensor | None, *states: Tensor) -> tuple[Tensor, ...]:
    """Return the hidden states of some tokens: (batch, tokens, hidden) to (n, hidden) each.

    Args:
        positions: indices into the flattened rows, (n,), int64; ``None`` for all tokens, in the
            shape that they have.
        *states: hidden states, (batch, tokens, hidden).
    """
    if positions is None:
        return states
    return tuple(state.flatten(0, 1).index_select(0, positions) for state in states)


def attend_at(
    positions: Tensor | None, attention: nn.Module, x: Tensor, *attention_args: Any
) -> Tensor:
    """Return the output of an attention module for some tokens; see ``select_tokens``."""
    module_type: Any = type(attention)
    if positions is not None and issubclass(module_type, SelfAttention):
        # A subclass may attend to something else.
        is_same = module_type.forward is SelfAttention.forward
        if is_same and module_type.attend is Attention.attend:
            return attention(x, *attention_args, positions=positions)  # type: ignore[no-any-return]
    return select_tokens(positions, attention(x, *attention_args))[0]


class PostNormBlock(nn.Module):
    """An encoder block with a layer norm after each residual sum, as in the first Transformer.

    Args:
        attention: module that maps (batch, tokens, hidden) to the same shape.
        hidden_size: width of input and output.
        intermediate_size: inner width of the feed-forward network.
        act: name of the activation function of the feed-forward network; ``None`` if ``ffn_type``
            has its own.
        layer_norm_eps: epsilon of both norms.
        dropout: dropout probability of what is added to the residual path.
        bias: whether the norms and the feed-forward network have biases.
        ffn_type: class of the feed-forward network, such as ``SwiGLU``.
        norm_type: class of the norms, such as ``zoo.nn.layers.norms.RMSNorm``.

    Attributes:
        attention, attention_norm, ffn, ffn_norm: the parts of the block.
    """

    def __init__(
        self,
        attention: nn.Module,
        *,
        hidden_size: int,
        intermediate_size: int,
        act: str | None = None,
        layer_norm_eps: float,
        dropout: float,
        bias: bool = True,
        ffn_type: Callable[..., FeedForward] = FeedForward,
        norm_type: Callable[..., nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = norm_type(hidden_size, eps=layer_norm_eps, bias=bias)
        sizes: dict[str, Any] = {
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "bias": bias,
        }
        if act is not None:
            sizes["act"] = act
        self.ffn = ffn_type(**sizes)
        self.ffn_norm = norm_type(hidden_size, eps=layer_norm_eps, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *attention_args: Any, positions: Tensor | None = None) -> Tensor:
        """Transform (batch, tokens, hidden) to the same shape.

        Args:
            x: (batch, tokens, hidden).
            *attention_args: further arguments of ``attention``, such as the mask.
            positions: indices into the flattened rows, (n,), int64, of the tokens to return;
                ``None`` for all.

        Returns:
            (batch, tokens, hidden), or (n, hidden).
        """
        attended = attend_at(positions, self.attention, x, *attention_args)
        (x,) = select_tokens(positions, x)
        x = self.attention_norm(x + self.dropout(attended))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))  # type: ignore[no-any-return]


class PreNormBlock(PostNormBlock):
    """The same block with the layer norms before attention and feed-forward network.

    The output of the last block is not normalized: see ``Encoder.final_norm``.
    """

    @override
    def forward(self, x: Tensor, *attention_args: Any, positions: Tensor | None = None) -> Tensor:
        attended = attend_at(positions, self.attention, self.attention_norm(x), *attention_args)
        (x,) = select_tokens(positions, x)
        x = x + self.dropout(attended)
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


class AttentionDropoutBlock(PreNormBlock):
    """``PreNormBlock`` with dropout on the output of its attention only."""

    @override
    def forward(self, x: Tensor, *attention_args: Any, positions: Tensor | None = None) -> Tensor:
        attended = attend_at(positions, self.attention, self.attention_norm(x), *attention_args)
        (x,) = select_tokens(positions, x)
        x = x + self.dropout(attended)
        return x + self.ffn(self.ffn_norm(x))  # type: ignore[no-any-return]


class ParallelBlock(PreNormBlock):
    """A block whose attention and feed-forward network read the same input."""

    # Both results are added to it at once (Chowdhery et al. 2022, arXiv:2204.02311, section 2).
    # Each has a norm of its own, ``attention_norm`` and ``ffn_norm``.

    @override
    def forward(self, x: Tensor, *attention_args: Any, positions: Tensor | None = None) -> Tensor:
        attended = attend_at(positions, self.attention, self.attention_norm(x), *attention_args)
        (x,) = select_tokens(positions, x)
        return x + self.dropout(attended) + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]
