"""GPT: a Transformer that reads a text from left to right, and says what comes next.

Radford, Narasimhan, Salimans and Sutskever 2018, "Improving Language Understanding by Generative
Pre-Training"; Radford, Wu, Child, Luan, Amodei and Sutskever 2019, "Language Models are
Unsupervised Multitask Learners" (GPT-2).

The papers in short. Each token's vector is the sum of two learned embeddings: which token it is,
and where it stands. A stack of Transformer blocks follows in which a token sees those before it
and itself, and none behind it. The vector at each place, compared with all token embeddings,
scores which token comes next; that is the one objective. GPT-2 differs from its predecessor in
where it normalises (section 2.3): what enters attention and feed-forward network instead of what
leaves them, with one more norm after the last block, and in the depth-scaled start of the weights
that feed the residual path. A text is written one token at a time: keys and values of the tokens
so far are kept in a cache, so that each step computes one token.

Every class below takes a batch as ``input_ids`` and ``attention_mask``, int64 and (batch, tokens)
each, padded on the right or on the left: the first real token of a row has position 0. A mask of
``None`` says that all tokens are real. All return a dict of named outputs.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.attention import causal_mask, packed_mask
from zoo.nn.blocks import PostNormBlock
from zoo.nn.cache import KeyValueCache, LayerCache
from zoo.nn.skinny import quicken, skinny_linear
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
        pre = config.norm == "pre"
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
        return self.outputs(self.trunk(input_ids, attention_mask), input_ids, attention_mask)

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

    def outputs(self, hidden: Tensor, input_ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """Read the head's outputs off the trunk's, (batch, tokens, hidden)."""
        return {"last_hidden_state": hidden}


class CausalState:
    """What is kept between the steps of generation: a cache, and where padding is in it."""

    def __init__(self, cache: KeyValueCache, mask: Tensor | None) -> None:
        self.cache, self.mask = cache, mask

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the order given."""
        self.cache.select(rows)
        self.mask = None if self.mask is None else self.mask[rows]


class CausalLM(Gpt):
    """Which token comes next? Also a ``zoo.generation.Decoder``."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        tied, shape = config.tie_embeddings, (config.hidden_size, config.vocab_size)
        self.head = None if tied else nn.Linear(*shape, bias=False)

    def outputs(self, hidden: Tensor, input_ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """See ``Gpt``."""
        return {"logits": self.scores(hidden)}  # (batch, tokens, vocabulary)

    def scores(self, hidden: Tensor) -> Tensor:
        """Score what comes next: (..., hidden) to (..., vocabulary)."""
        return skinny_linear(hidden, self.table)

    @property
    def table(self) -> Tensor:
        """What hidden vectors are compared with, (vocabulary, hidden)."""
        return (self.embeddings.tokens if self.head is None else self.head).weight

    def quicken(self) -> None:
        """Prepare to generate on a CPU."""
        quicken(self)

    def prefill(self, inputs: Mapping[str, Tensor], room: int) -> tuple[Tensor, CausalState]:
        """Read the prompts, padded on the left; see ``zoo.generation.Decoder``."""
        mask = inputs.get("attention_mask")
        state = CausalState(KeyValueCache(len(self.layers), room), mask)
        hidden = self.trunk(inputs["input_ids"], mask, state.cache)
        return self.scores(hidden[:, -1]), state

    def step(self, tokens: Tensor, state: CausalState) -> Tensor:
        """Read one more token of each row; see ``zoo.generation.Decoder``."""
        if state.mask is not None:
            state.mask = F.pad(state.mask, (0, 1), value=1)
        return self.scores(self.trunk(tokens[:, None], state.mask, state.cache)[:, -1])
