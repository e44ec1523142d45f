"""ELMo: Embeddings from Language Models.

Peters, Neumann, Iyyer, Gardner, Clark, Lee and Zettlemoyer 2018, "Deep contextualized word
representations", arXiv:1802.05365.

Words are read as characters, so the input has no unknown words: character convolutions with max
pooling, highway layers and a projection compute a word embedding (section 3.1; the network of
Jozefowicz et al. 2016, arXiv:1602.02410). Two stacks of LSTMs, a forward and a backward one, each
predict the next word in their direction; they share the word embeddings and the softmax. For a
downstream task, all layers are mixed with learned weights (section 3.2, equation 1):

    ELMo = gamma * sum over k of softmax(w)_k h_k

where h_0 is the word embedding, twice, and h_k the concatenated outputs of the k-th LSTMs. The mix
is the last of ``layers`` here. The boundaries of a sentence are also words.

Details that the paper leaves open follow the released code, allenai/bilm-tf. The forward
pass: ``zoo_elmo.lstm``, ``zoo.nn.layers.recurrent`` and ``zoo.nn.layers.highway``.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.encoder import mask_value
from zoo.nn.heads import LinearHead
from zoo.nn.layers.activations import activation
from zoo.nn.layers.dropout import Dropout
from zoo.nn.layers.highway import Highway
from zoo.nn.layers.recurrent import RecurrentState
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.overrides import override
from zoo_elmo.config import CHARACTERS, ElmoConfig
from zoo_elmo.lstm import BidirectionalLstm, ProjectedLstm


class CharacterEncoder(nn.Module):
    """Computes word embeddings from characters."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        size = config.character_size
        total = config.filter_count
        width = config.projection_size
        self.characters = nn.Embedding(CHARACTERS - 1, size)
        # filters are two-dimensional in the file, with a second dimension of size 1
        self.filters = nn.ModuleList(nn.Conv2d(size, n, (seen, 1)) for seen, n in config.filters)
        self.highways = nn.Sequential(*(Highway(total) for _ in range(config.highways)))
        self.projection = nn.Linear(total, width) if total != width else nn.Identity()
        self.act = activation(config.activation)

    def forward(self, character_ids: Tensor) -> Tensor:
        """Return the word embeddings, repeated for the two directions, (batch, tokens, hidden).

        Args:
            character_ids: (batch, tokens, characters), int64; 0 is padding.
        """
        table = F.pad(self.characters.weight, (0, 0, 1, 0))  # the row of id 0 is zero
        x = F.embedding(character_ids.flatten(0, 1), table).transpose(1, 2)
        pooled = []
        for filters in self.filters:
            weight, bias = filters.parameters()
            matches = F.conv1d(x, weight.squeeze(-1), bias)  # faster than conv2d
            # both activation functions are monotonic, so they commute with the maximum
            pooled.append(self.act(matches.amax(-1)))
        x = self.projection(self.highways(torch.cat(pooled, dim=-1)))
        x = x.view(*character_ids.shape[:2], -1)
        return torch.cat([x, x], dim=-1)


class Elmo(nn.Module):
    """The backbone with the mix of its layers."""

    def __init__(self, config: ElmoConfig, *, mix: bool = True) -> None:
        super().__init__()
        self.embeddings = CharacterEncoder(config)
        self.layers = nn.ModuleList(BidirectionalLstm(config, k) for k in range(config.lstm_layers))
        if mix:
            self.layers.append(ScalarMix(config.lstm_layers + 1, learned=config.mix))

    def backbone(
        self, character_ids: Tensor, attention_mask: Tensor | None, state: RecurrentState | None
    ) -> list[Tensor]:
        """Return the word embeddings and the output of each LSTM layer; see ``forward``."""
        mask = self.word_mask(character_ids, attention_mask)
        return self.run_lstms(self.embeddings(character_ids) * mask.unsqueeze(-1), mask, state)

    @staticmethod
    def word_mask(character_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return which positions are words or boundaries, (batch, tokens), bool."""
        mask = (character_ids > 0).any(-1)
        return mask if attention_mask is None else mask & (attention_mask > 0)

    def run_lstms(
        self, embeddings: Tensor, mask: Tensor, state: RecurrentState | None
    ) -> list[Tensor]:
        """Return the word embeddings and the output of each LSTM layer.

        Args:
            embeddings: (batch, tokens, hidden): inputs of the forward and of the backward LSTM,
                concatenated.
            mask: (batch, tokens), bool: true for words.
        """
        hidden_states = [embeddings]
        state = state or RecurrentState()
        for layer in self.layers:
            if isinstance(layer, BidirectionalLstm):
                hidden_states.append(layer(hidden_states[-1], mask, state))
        return hidden_states

    def forward(
        self,
        character_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: RecurrentState | None = None,
    ) -> dict[str, Tensor]:
        """Return the named outputs of the head.

        Args:
            character_ids: (batch, tokens, characters), int64; a word of zeros is padding.
            attention_mask: (batch, tokens), int64: 1 for words, 0 for padding; ``None`` for all 1.
        """
        return self.outputs(self.backbone(character_ids, attention_mask, state))

    def outputs(self, layers: list[Tensor]) -> dict[str, Tensor]:
        """Return the named outputs for the outputs of all layers."""
        return {"last_hidden_state": self.layers[-1](layers)}


class LanguageModel(Elmo):
    """The bidirectional language model: logits of the next and of the previous word."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config, mix=False)
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(config.projection_size, config.vocab_size)

    @override
    def outputs(self, layers: list[Tensor]) -> dict[str, Tensor]:
        """Return the logits of both directions, (batch, tokens, vocabulary) each."""
        forward, backward = self.directions(layers)
        return {"forward_logits": self.head(forward), "backward_logits": self.head(backward)}

    def directions(self, layers: list[Tensor]) -> tuple[Tensor, ...]:
        """Return the last hidden states of both directions, (batch, tokens, width) each."""
        return self.dropout(layers[-1]).chunk(2, dim=-1)  # type: ignore[no-any-return]


class WordClassifier(Elmo):
    """Classification of words by the mix of the layers."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.head = LinearHead(config.hidden_size, len(config.labels), config.dropout)

    @override
    def outputs(self, layers: list[Tensor]) -> dict[str, Tensor]:
        """Return the logits, (batch, tokens, labels)."""
        return {"logits": self.head(self.layers[-1](layers))}


class TextClassifier(WordClassifier):
    """Classification of texts by the mix of the layers, and its maximum over words and boundaries.

    Conneau et al. 2017, arXiv:1705.02364, section 3.2.2, compare such a maximum with the mean.
    """

    @override
    def forward(
        self,
        character_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: RecurrentState | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits, (batch, labels); see ``Elmo``."""
        mixed = self.layers[-1](self.backbone(character_ids, attention_mask, state))
        mask = self.word_mask(character_ids, attention_mask).unsqueeze(-1)
        words = mixed.masked_fill(~mask, mask_value(mixed.dtype))  # padding is never the maximum
        return {"logits": self.head(words.amax(1))}


_HEADS: dict[str, type[Elmo]] = {
    "none": Elmo,
    "bidirectional-lm": LanguageModel,
    "sequence-classification": TextClassifier,
    "token-classification": WordClassifier,
}


def build(config: ElmoConfig, head: str) -> Elmo:
    """Return a model with randomly initialized weights, as in the released code."""
    model = _HEADS[head](config)
    draw = partial(_draw, config)
    if isinstance(model, LanguageModel | WordClassifier):
        draw(model.head)
    model.embeddings.apply(draw)
    model.layers.apply(draw)
    return model


def _draw(config: ElmoConfig, module: nn.Module) -> None:
    """Initialize the parameters of a module, but not of its submodules."""
    match module:
        case nn.Embedding():
            nn.init.uniform_(module.weight, -1.0, 1.0)
        case nn.Conv2d() if config.activation == "relu":
            nn.init.uniform_(module.weight, -0.05, 0.05)
        case nn.Conv2d() | nn.Linear():
            nn.init.normal_(module.weight, std=math.sqrt(1 / math.prod(module.weight.shape[1:])))
        case Highway():
            nn.init.constant_(
                module.carry.bias, -2.0
            )  # initially, the input passes almost unchanged
        case ProjectedLstm():
            nn.init.xavier_uniform_(module.kernel)
            if module.projection is not None:
                nn.init.xavier_uniform_(module.projection)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
