"""XLNet: Generalized Autoregressive Pretraining for Language Understanding.

Yang, Dai, Yang, Carbonell, Salakhutdinov and Le 2019, arXiv:1906.08237. A language model predicts
the tokens of a text in a random order, each from those before it in that order, so that it learns
from both sides of a token without masks in its input (section 2.2). It has two streams of hidden
states with the same weights (section 2.3): one for a token's content, which later tokens attend to,
and one for a place to predict, which begins with a learned vector and does not see the token there.
``XLNetBackbone.encode_targets`` computes both; everything else needs only the content stream.
Positions and segments are compared within attention, and the hidden states of earlier segments are
a memory (section 2.4): see ``zoo_xlnet.attention``.

A token ``<mask>`` in a text is a place to be predicted: it begins with the same vector, and no
token attends to it. Text in pretraining has no ``<mask>``, so that its embedding, with which the
Hub's classes begin, was never trained.

Details that the paper leaves open follow the released code (zihangdai/xlnet, modeling.py).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from zoo.nn.encoder import Encoder, mask_value
from zoo.nn.encoder_factory import make_blocks
from zoo.nn.transformer import FeedForward
from zoo_xlnet.attention import RelativeAttention, TwoStreamContext, distance_encodings
from zoo_xlnet.config import XLNetConfig

Memory = Sequence[Tensor]  # of each block, (batch, memory, hidden)


class XLNetEmbeddings(nn.Module):
    """Token embeddings, with a learned vector in place of ``<mask>``.

    Args:
        config: the configuration.
    """

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mask = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.mask_token_id = config.mask_token_id
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids: Tensor, targets: int = 0) -> Tensor:
        """Return the embeddings of tokens, and of places to be predicted after them.

        Args:
            input_ids: (batch, tokens), int64.
            targets: number of places.

        Returns:
            (batch, tokens + targets, hidden).
        """
        is_mask = (input_ids == self.mask_token_id)[..., None]
        x = torch.where(is_mask, self.mask, self.tokens(input_ids))
        if targets:
            x = torch.cat((x, self.mask.expand(len(x), targets, -1)), dim=1)
        return self.dropout(x)  # type: ignore[no-any-return]


class XLNetBackbone(Encoder):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: XLNetConfig, **head_args: Any) -> None:
        layers = make_blocks(
            config,
            attention=lambda _: RelativeAttention(config),
            ffn_type=partial(FeedForward, dropout=config.dropout),
        )
        super().__init__(XLNetEmbeddings(config), layers, **head_args)
        self.config = config
        self.dropout = nn.Dropout(config.dropout)

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden state; see ``Encoder``.

        Tokens that are next to each other in a document are so in its row: ``position_ids`` are not
        needed.
        """
        hidden = self._hidden_keys(input_ids, attention_mask, document_ids)
        return self._run(input_ids, hidden, token_type_ids)

    def encode_with_memory(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        memory: Memory | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the last hidden state of a segment of a text, and the memory for the next one.

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: (batch, tokens), int64; ``None`` for all 1.
            token_type_ids: (batch, tokens), int64; ``None`` for all 0, as is the memory's.
            memory: hidden states of the segment before; ``None`` for the first.
        """
        inputs: list[Tensor] = []
        hidden = self._hidden_keys(input_ids, attention_mask, None)
        last = self._run(input_ids, hidden, token_type_ids, memory=memory, inputs=inputs)
        config = self.config
        return last, extend_memory(memory, inputs, config.mem_len, config.reuse_len)

    def encode_targets(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        hidden: Tensor,
        targets: Tensor,
        *,
        memory: Memory | None = None,
        direction: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run both streams.

        Args:
            input_ids: (batch, tokens), int64.
            token_type_ids: (batch, tokens), int64; ``None`` for all 0.
            hidden: (batch, tokens, tokens), bool: true for the keys that the prediction of a token
                may not depend on, which include the token itself; ``perm_mask`` of released code.
            targets: (batch, targets), int64: the places to predict.
            memory: see ``encode_with_memory``.
            direction: (batch,), int64: 1 for rows whose tokens are in reverse order; ``None`` for
                no such rows.

        Returns:
            The last hidden state of the query stream, (batch, targets, hidden), and the inputs of
            all blocks, of the content stream, for ``extend_memory``.
        """
        inputs: list[Tensor] = []
        streams = self._run(
            input_ids,
            hidden,
            token_type_ids,
            memory=memory,
            inputs=inputs,
            targets=targets,
            direction=direction,
        )
        return streams[:, input_ids.shape[1] :], inputs

    def _hidden_keys(
        self, input_ids: Tensor, attention_mask: Tensor | None, document_ids: Tensor | None
    ) -> Tensor:
        """Return the keys that no prediction may depend on, (batch, 1 or tokens, tokens), bool."""
        hidden = torch.zeros_like(input_ids, dtype=torch.bool)[:, None]
        if attention_mask is not None:
            hidden = (attention_mask == 0)[:, None]
        if document_ids is not None:
            hidden = hidden | (document_ids[:, :, None] != document_ids[:, None, :])
        return hidden

    def _run(
        self,
        input_ids: Tensor,
        hidden: Tensor,
        token_type_ids: Tensor | None,
        *,
        memory: Memory | None = None,
        memory_padding: Tensor | None = None,
        inputs: list[Tensor] | None = None,
        targets: Tensor | None = None,
        direction: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden state of the tokens and after them of the targets.

        Args:
            input_ids: (batch, tokens), int64.
            hidden: keys that predictions may not depend on, (batch, 1 or tokens, tokens), bool.
            token_type_ids: (batch, tokens), int64, or ``None``.
            memory: memory of each block, or ``None``.
            memory_padding: true for hidden states of padding in it, (batch, memory), bool;
                ``None`` for none.
            inputs: list to which the inputs of all blocks are added, of the content stream.
            targets: places to predict, (batch, targets), int64, or ``None``.
            direction: see ``encode_targets``.
        """
        tokens = input_ids.shape[1]
        past = 0 if memory is None else memory[0].shape[1]
        x = self.embeddings(input_ids, 0 if targets is None else targets.shape[1])
        encodings = distance_encodings(
            self.config,
            tokens=tokens,
            keys=past + tokens,
            like=x,
            directions=1 if direction is None else 2,
        )
        context = TwoStreamContext(
            tokens,
            self.dropout(encodings),
            self._mask(input_ids, hidden, targets, past, memory_padding, x.dtype),
            _other_segment(token_type_ids, targets, past, x.dtype),
            direction,
            None if targets is None else _columns(targets, tokens, past),
        )
        for number, layer in enumerate(self.layers):
            if inputs is not None:
                inputs.append(x[:, :tokens])
            memory_of_layer = None if memory is None else memory[number]
            x = layer(x, context._replace(memory=memory_of_layer))
        return self.dropout(x)  # type: ignore[no-any-return]

    def _mask(
        self,
        input_ids: Tensor,
        hidden: Tensor,
        targets: Tensor | None,
        past: int,
        memory_padding: Tensor | None,
        dtype: torch.dtype,
    ) -> Tensor:
        """Return the mask of the scores; see ``TwoStreamContext``.

        A token's content may depend on itself, even where it is padding, as in released code.
        """
        itself = torch.eye(input_ids.shape[1], dtype=torch.bool, device=input_ids.device)
        masked = hidden & ~itself
        if targets is not None:
            rows = targets[..., None].expand(-1, -1, hidden.shape[-1])
            masked = torch.cat((masked, hidden.expand_as(masked).gather(1, rows)), dim=1)
        masked = masked | (input_ids == self.config.mask_token_id)[:, None]
        masked = nn.functional.pad(masked, (past, 0))  # all may see the memory
        if memory_padding is not None:
            masked[:, :, :past] = memory_padding[:, None]
        return (masked.to(dtype) * mask_value(dtype))[:, None]


def _other_segment(
    token_type_ids: Tensor | None, targets: Tensor | None, past: int, dtype: torch.dtype
) -> Tensor | None:
    """Return which queries and keys are of different segments; see ``TwoStreamContext``."""
    if token_type_ids is None:
        return None
    queries = token_type_ids
    keys = nn.functional.pad(token_type_ids, (past, 0))
    if targets is not None:
        queries = torch.cat((queries, token_type_ids.gather(1, targets)), dim=1)
    return (queries[:, None, :, None] != keys[:, None, None, :]).to(dtype)


def _columns(targets: Tensor, tokens: int, past: int) -> Tensor:
    """Return the index of the encoding for each target and key; see ``TwoStreamContext``."""
    keys = torch.arange(past + tokens, device=targets.device)
    return keys + (tokens - 1 - targets)[..., None]


def extend_memory(
    memory: Memory | None, inputs: Memory, mem_len: int | None, reuse_len: int | None
) -> list[Tensor]:
    """Return the memory after a segment, without gradients.

    Args:
        memory: memory before the segment, or ``None``.
        inputs: inputs of all blocks, (batch, tokens, hidden) each.
        mem_len: largest number of tokens that is kept, the last ones; ``None`` for all.
        reuse_len: number of first tokens of the segment that are added; ``None`` for all.
    """
    added = [states[:, :reuse_len] for states in inputs]
    if memory is not None:
        added = [torch.cat(pair, dim=1) for pair in zip(memory, added, strict=True)]
    return [states[:, -(mem_len or states.shape[1]) :].detach() for states in added]
