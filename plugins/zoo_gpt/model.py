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

from zoo.nn.cache import KeyValueCache
from zoo.nn.heads import Labels, LinearHead, NextToken, Spans, at_places
from zoo.nn.init import init_weights
from zoo_gpt.config import GptConfig
from zoo_gpt.trunk import Gpt

CLASSIFIER_DROPOUT = 0.1  # before a classifier of tokens; the published models say no other


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

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        tied, shape = config.tie_embeddings, (config.hidden_size, config.vocab_size)
        self.head = None if tied else nn.Linear(*shape, bias=False)

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


def last_places(input_ids: Tensor, mask: Tensor | None, pad_token_id: int | None) -> Tensor:
    """Return where the last token is that neither mask nor id call padding, (batch,)."""
    real = torch.ones_like(input_ids) if mask is None else mask
    if pad_token_id is not None:
        real = real * (input_ids != pad_token_id)
    places = torch.arange(input_ids.shape[1], device=input_ids.device)
    return (places * real).argmax(1)


class SequenceClassification(Labels, Gpt):
    """What is said of the text as a whole, read off its last token: it alone has seen all
    others (Radford et al. 2018, section 3.2).
    """

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, len(config.labels), bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Score each text: (batch, labels)."""
        last = last_places(input_ids, attention_mask, self.config.pad_token_id)
        return self.outputs(at_places(self.trunk(input_ids, attention_mask), last))


class MultipleChoice(CausalLM):
    """Which of several texts is it? One number for each, read off its last token, beside the
    scores of what comes next: the first GPT was tuned on both at once (section 3.2).
    """

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.choice_dropout)
        self.choice = nn.Linear(config.hidden_size, 1)

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
        hidden = self.trunk(ids, mask)
        choice = self.choice(self.dropout(at_places(hidden, places)))
        return {
            "logits": self.scores(hidden).view(*shape, -1),  # (batch, choices, tokens, vocabulary)
            "mc_logits": choice.view(shape[:2]),  # (batch, choices)
        }


class TokenClassification(Labels, Gpt):
    """What is said of each token, from it and those before it: (batch, tokens, labels)."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.head = LinearHead(config.hidden_size, len(config.labels), CLASSIFIER_DROPOUT)


class QuestionAnswering(Spans, Gpt):
    """Where in the text an answer starts, and where it ends: (batch, tokens) each."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 2)


_HEADS: dict[str, type[Gpt]] = {
    "none": Gpt,
    "causal-lm": CausalLM,
    "multiple-choice": MultipleChoice,
    "sequence-classification": SequenceClassification,
    "token-classification": TokenClassification,
    "question-answering": QuestionAnswering,
}


def build(config: GptConfig, head: str) -> Gpt:
    """Return a model with fresh weights, those on GPT-2's residual path smaller with depth."""
    model = _HEADS[head](config)
    init_weights(model, std=config.initializer_range)
    if config.norm == "pre":
        std = config.initializer_range / (2 * config.num_layers) ** 0.5
        for name, parameter in model.layers.named_parameters():
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)
    return model
