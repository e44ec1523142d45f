"""What stands on a GPT besides the scores of what comes next.

Each reads what it says off the trunk's vectors: of a text as a whole, off its last token, the one
that has seen all others (Radford et al. 2018, section 3.2).
"""

import torch
from torch import Tensor, nn

from zoo.nn.init import init_weights
from zoo_gpt.config import GptConfig
from zoo_gpt.model import CausalLM, Gpt

CLASSIFIER_DROPOUT = 0.1  # before a classifier of tokens; the published models say no other


def last_places(input_ids: Tensor, mask: Tensor | None, pad_token_id: int | None) -> Tensor:
    """Return where the last token is that neither mask nor id call padding, (batch,)."""
    real = torch.ones_like(input_ids) if mask is None else mask
    if pad_token_id is not None:
        real = real * (input_ids != pad_token_id)
    places = torch.arange(input_ids.shape[1], device=input_ids.device)
    return (places * real).argmax(1)


def at_places(hidden: Tensor, places: Tensor) -> Tensor:
    """Take one vector of each row: (batch, hidden) from (batch, tokens, hidden)."""
    return hidden[torch.arange(places.shape[0], device=places.device), places]


class SequenceClassification(Gpt):
    """What is said of the text as a whole, read off its last token: it alone has seen all."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.pad_token_id = config.pad_token_id
        self.head = nn.Linear(config.hidden_size, len(config.labels), bias=False)

    def outputs(self, hidden: Tensor, input_ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """See ``Gpt``."""
        last = last_places(input_ids, mask, self.pad_token_id)
        return {"logits": self.head(at_places(hidden, last))}  # (batch, labels)


class MultipleChoice(CausalLM):
    """Which of several texts is it? One number for each, read off its last token, beside the
    scores of what comes next: the first GPT was tuned on both at once (section 3.2).
    """

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.pad_token_id = config.pad_token_id
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
            places = last_places(ids, mask, self.pad_token_id)
        else:
            places = mc_token_ids.flatten()
        hidden = self.trunk(ids, mask)
        choice = self.choice(self.dropout(at_places(hidden, places)))
        return {
            "logits": self.scores(hidden).view(*shape, -1),  # (batch, choices, tokens, vocabulary)
            "mc_logits": choice.view(shape[:2]),  # (batch, choices)
        }


class TokenClassification(Gpt):
    """What is said of each token, from it and those before it."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(CLASSIFIER_DROPOUT)
        self.head = nn.Linear(config.hidden_size, len(config.labels))

    def outputs(self, hidden: Tensor, input_ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """See ``Gpt``."""
        return {"logits": self.head(self.dropout(hidden))}  # (batch, tokens, labels)


class QuestionAnswering(Gpt):
    """Where in the text an answer starts, and where it ends."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 2)

    def outputs(self, hidden: Tensor, input_ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """See ``Gpt``."""
        start, end = self.head(hidden).unbind(dim=-1)  # (batch, tokens) each
        return {"start_logits": start, "end_logits": end}


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
