"""What GPT is made of: embeddings, blocks, and the trunk that all heads share."""

import torch
from torch import Tensor, nn

from zoo.nn.attention import causal_mask, packed_mask
from zoo.nn.blocks import PostNormBlock
from zoo.nn.cache import KeyValueCache, LayerCache
from zoo_gpt.config import GptConfig


class Embeddings(nn.Module):
    """The sum of a token's embedding and its position's."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_positions, config.hidden_size)
        self.dropout = nn.Dropout(config.embedding_dropout)

    def forward(
        self,
        input_ids: Tensor,
        mask: Tensor | None = None,
        past: int = 0,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Embed token numbers.

        Args:
            input_ids: (batch, tokens), int64.
            mask: (batch, past + tokens), zero for padding; ``None`` where every token is real.
            past: how many tokens stand before them.
            position_ids: (batch, tokens), if mask and past do not say where each stands.

        Returns:
            (batch, tokens, hidden).
        """
        total = past + input_ids.shape[1]
        if position_ids is not None:
            where = self.positions(position_ids)
        elif mask is None:
            where = self.positions.weight[past:total]  # (tokens, hidden): a view
        else:
            padding = (mask.cumsum(1) == 0).sum(1, keepdim=True)  # on the left, (batch, 1)
            places = torch.arange(past, total, device=mask.device) - padding
            where = self.positions(places.clamp(min=0))
        return self.dropout(self.tokens(input_ids) + where)  # type: ignore[no-any-return]


class PreNormBlock(PostNormBlock):
    """GPT-2's block: the same parts, with the norms before attention and feed-forward network."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """See ``PostNormBlock``."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, cache))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """The trunk, which all heads share. A head adds a module and says in ``outputs`` what for.

    Args:
        config: the shape.
    """

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config, pre = config, config.norm == "pre"
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            (PreNormBlock if pre else PostNormBlock)(
                hidden_size=config.hidden_size,
                num_heads=config.num_heads,
                intermediate_size=config.inner_size,
                act=config.activation,
                layer_norm_eps=config.layer_norm_eps,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                causal=True,
                scale=config.attention_scale(layer),
            )
            for layer in range(config.num_layers)
        )
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if pre else None
        self.final_norm = norm

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Run the trunk, then the head."""
        return self.outputs(self.trunk(input_ids, attention_mask))

    def trunk(
        self, input_ids: Tensor, mask: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """Run the trunk.

        Args:
            input_ids: (batch, tokens); with a cache, those alone that it does not hold.
            mask: (batch, tokens), those in the cache included, or ``None``.
            cache: of the tokens before; these are added to it.

        Returns:
            (batch, tokens, hidden).
        """
        past = cache.length if cache else 0
        x = self.embeddings(input_ids, mask, past)
        ahead = causal_mask(mask, queries=input_ids.shape[1], past=past, like=x)
        return self._blocks(x, ahead, cache)

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Run the trunk in training, where several texts may share a row.

        Args:
            input_ids: (batch, tokens).
            attention_mask: (batch, tokens): with positions, the number of the text that each
                token is of, from 1, and 0 for padding.
            position_ids: (batch, tokens), from 0 in each text; for such rows alone.

        Returns:
            (batch, tokens, hidden).
        """
        if position_ids is None or attention_mask is None:
            return self.trunk(input_ids, attention_mask)
        x = self.embeddings(input_ids, position_ids=position_ids)
        return self._blocks(x, packed_mask(attention_mask, attention_mask, x.dtype, causal=True))

    def _blocks(
        self, x: Tensor, ahead: Tensor | None, cache: KeyValueCache | None = None
    ) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, ahead, cache.layers[number] if cache else None)
        return x if self.final_norm is None else self.final_norm(x)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Read the head's outputs off the trunk's, (batch, tokens, hidden)."""
        return {"last_hidden_state": hidden}
