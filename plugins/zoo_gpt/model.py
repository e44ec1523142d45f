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

A batch is as ``zoo.nn.encoder`` says, padded on the right or on the left: the first real token of
a row has position 0. No segments are told apart.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.assembly import Assembly, Reader
from zoo.nn.attention import causal_mask, packed_mask
from zoo.nn.blocks import PostNormBlock
from zoo.nn.cache import KeyValueCache
from zoo.nn.encoder import Classifier, Encoder, blocks, embeddings, self_attention
from zoo.nn.heads import LinearHead, NextToken, at_places
from zoo_gpt.config import GptConfig


class PreNormBlock(PostNormBlock):
    """GPT-2's block: the same parts, with the norms before attention and feed-forward network."""

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        """See ``PostNormBlock``."""
        x = x + self.dropout(self.attention(self.attention_norm(x), *given))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


def places(input_ids: Tensor, mask: Tensor | None, past: int) -> Tensor:
    """Return where each token stands, (batch or 1, tokens): a row's first real one at 0.

    Args:
        input_ids: (batch, tokens).
        mask: (batch, past + tokens), zero for padding, or ``None``.
        past: how many tokens stand before them.
    """
    where = torch.arange(past, past + input_ids.shape[1], device=input_ids.device)[None]
    if mask is None:
        return where
    return (where - (mask.cumsum(1) == 0).sum(1, keepdim=True)).clamp(min=0)  # padding on the left


class Gpt(Encoder):
    """The trunk, which all heads share.

    Args:
        config: the shape.
        **top: the head, see ``Encoder``.
    """

    def __init__(self, config: GptConfig, **top: Any) -> None:
        kind = PreNormBlock if config.norm == "pre" else PostNormBlock
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

        def attention(number: int) -> nn.Module:
            scale = config.attention_scale(number)
            return self_attention(config, causal=True, scale=scale)

        layers = blocks(config, kind, attention=attention, intermediate_size=config.inner_size)
        top["final_norm"] = norm if config.norm == "pre" else None
        super().__init__(embeddings(config, norm=False), layers, **top)
        self.config = config

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """See ``Encoder``.

        With a cache, the inputs are of those tokens alone that it does not hold, to which it adds
        them; the mask is (batch, tokens) of all.
        """
        past, tokens = cache.length if cache else 0, input_ids.shape[1]
        if position_ids is None or attention_mask is None:
            x = self.embeddings(input_ids, token_type_ids, places(input_ids, attention_mask, past))
            mask = causal_mask(attention_mask, queries=tokens, past=past, like=x)
        else:
            x = self.embeddings(input_ids, token_type_ids, position_ids)
            mask = packed_mask(attention_mask, attention_mask, x.dtype, causal=True)
        for number, layer in enumerate(self.layers):
            x = layer(x, mask, cache.layers[number] if cache else None)
        return self.finish(x)


class CausalState:
    """What is kept between the steps of generation: a cache, and where padding is in it."""

    def __init__(self, cache: KeyValueCache, mask: Tensor | None) -> None:
        self.cache, self.mask = cache, mask

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the order given."""
        self.cache.select(rows)
        self.mask = None if self.mask is None else self.mask[rows]


class CausalLM(NextToken, Gpt):
    """Which token comes next? Also a ``zoo.generation.Decoder``."""

    def prefill(self, inputs: Mapping[str, Tensor], room: int) -> tuple[Tensor, CausalState]:
        """Read the prompts, padded on the left; see ``zoo.generation.Decoder``."""
        mask = inputs.get("attention_mask")
        state = CausalState(KeyValueCache(len(self.layers), room), mask)
        hidden = self.encode(inputs["input_ids"], mask, cache=state.cache)
        return self.scores(hidden[:, -1]), state

    def step(self, tokens: Tensor, state: CausalState) -> Tensor:
        """Read one more token of each row; see ``zoo.generation.Decoder``."""
        if state.mask is not None:
            state.mask = F.pad(state.mask, (0, 1), value=1)
        return self.scores(self.encode(tokens[:, None], state.mask, cache=state.cache)[:, -1])


def last_places(input_ids: Tensor, mask: Tensor | None, pad_token_id: int | None) -> Tensor:
    """Return where the last token is that neither mask nor id call padding, (batch,)."""
    real = torch.ones_like(input_ids) if mask is None else mask
    if pad_token_id is not None:
        real = real * (input_ids != pad_token_id)
    return (torch.arange(input_ids.shape[1], device=input_ids.device) * real).argmax(1)


class SequenceClassification(Classifier, Gpt):
    """What is said of the text as a whole, read off its last token: it alone has seen all
    others (Radford et al. 2018, section 3.2).
    """

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Score each text: (batch, labels)."""
        last = last_places(input_ids, attention_mask, self.config.pad_token_id)
        hidden = self.encode(input_ids, attention_mask, token_type_ids)
        return self.outputs(at_places(hidden, last))


class MultipleChoice(CausalLM):
    """Which of several texts is it? One number for each, read off its last token, beside the
    scores of what comes next: the first GPT was tuned on both at once (section 3.2).
    """

    def __init__(self, config: GptConfig, **top: Any) -> None:
        super().__init__(config, **top)
        self.choice = LinearHead(config.hidden_size, 1, config.choice_dropout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        mc_token_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Read each text by itself, as one of a larger batch.

        Args:
            input_ids: (batch, choices, tokens), int64.
            attention_mask: the same, or ``None``.
            mc_token_ids: (batch, choices), int64: where the token is that a text is judged by,
                if it is not the last one.
        """
        mask = None if attention_mask is None else attention_mask.flatten(0, 1)
        ids, shape = input_ids.flatten(0, 1), input_ids.shape
        if mc_token_ids is None:
            places = last_places(ids, mask, self.config.pad_token_id)
        else:
            places = mc_token_ids.flatten()
        hidden = self.encode(ids, mask)
        return {
            "logits": self.scores(hidden).view(*shape, -1),  # (batch, choices, tokens, vocabulary)
            "mc_logits": self.choice(at_places(hidden, places)).view(shape[:2]),  # (batch, choices)
        }


class GptAssembly(Assembly):
    """The family's trunk under the usual heads and its own."""

    trunk_type: ClassVar[type[Encoder]] = Gpt

    def reader(self, head: str) -> Reader:
        """See ``Assembly``."""
        labels, vocabulary = len(self.config.labels), self.config.vocab_size
        if head == "sequence-classification":
            return SequenceClassification, None, nn.Linear(self.width, labels, bias=False)
        if head in ("causal-lm", "multiple-choice"):
            tied = self.config.tie_embeddings
            table = None if tied else nn.Linear(self.width, vocabulary, bias=False)
            return CausalLM if head == "causal-lm" else MultipleChoice, None, table
        return super().reader(head)

    def tokens(self, outputs: int) -> nn.Module:
        """See ``Assembly``; the published models say no other dropout."""
        return LinearHead(self.width, outputs, dropout=0.1)


def build(config: GptConfig, head: str) -> Encoder:
    """Return a model with fresh weights, those on GPT-2's residual path smaller with depth."""
    model = GptAssembly(config).build(head)
    if config.norm == "pre":
        std = config.initializer_range / (2 * config.num_layers) ** 0.5
        for name, parameter in model.layers.named_parameters():
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)
    return model
