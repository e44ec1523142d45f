"""ELMo: Embeddings from Language Models.

Peters, Neumann, Iyyer, Gardner, Clark, Lee and Zettlemoyer 2018, "Deep contextualized word
representations", arXiv:1802.05365.

The paper in short. Words are read as characters, so that any word has a vector: convolutions look
for groups of characters, the best match of each filter counts, highway layers and a projection
make a vector of that (section 3.1; the network is Jozefowicz et al. 2016, arXiv:1602.02410). Two
stacks of LSTMs go over the sentence, one from the left and one from the right, and each learns to
predict the word that comes next in its direction; characters and softmax are shared. For a task,
all layers are mixed, with weights that the task learns (section 3.2, equation 1):

    ELMo = gamma * sum over k of softmax(w)_k h_k

where h_0 is the word's vector, twice, and h_k the outputs of the k-th LSTMs, side by side. The
mix is the last of ``layers`` here. A sentence's boundaries are words like the others.

The released code, allenai/bilm-tf, fixes what the paper leaves open: ``zoo_elmo.lstm``.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.layers.highway import Highway
from zoo.nn.layers.recurrent import RecurrentState
from zoo.nn.transformer import activation
from zoo_elmo.config import CHARACTERS, ElmoConfig
from zoo_elmo.lstm import BidirectionalLstm, ProjectedLstm


class CharacterEncoder(nn.Module):
    """From the characters of a word to its vector.

    Args:
        config: the family's configuration.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        size, total, width = config.character_size, config.filter_count, config.projection_size
        self.characters = nn.Embedding(CHARACTERS - 1, size)
        # the file's filters have two dimensions, the second of size one
        self.filters = nn.ModuleList(nn.Conv2d(size, n, (seen, 1)) for seen, n in config.filters)
        self.highways = nn.Sequential(*(Highway(total) for _ in range(config.highways)))
        self.projection = nn.Linear(total, width) if total != width else nn.Identity()
        self.act = activation(config.activation)

    def forward(self, character_ids: Tensor) -> Tensor:
        """Return (batch, tokens, hidden): each word's vector twice, once for each direction.

        Args:
            character_ids: (batch, tokens, characters), int64; 0 stands for no character.
        """
        table = F.pad(self.characters.weight, (0, 0, 1, 0))  # the row of 0 is zero
        x = F.embedding(character_ids.flatten(0, 1), table).transpose(1, 2)
        found = []
        for filters in self.filters:
            weight, bias = filters.parameters()
            matches = F.conv1d(x, weight.squeeze(-1), bias)  # in one dimension, which is faster
            # the activations rise throughout, so the largest match may be taken before them
            found.append(self.act(matches.amax(-1)))
        x = self.projection(self.highways(torch.cat(found, dim=-1)))
        x = x.view(*character_ids.shape[:2], -1)
        return torch.cat([x, x], dim=-1)


class Mix(nn.Module):
    """Equation 1 of the paper; without weights of its own, the mean of the layers.

    Args:
        layers: how many are mixed.
        learned: whether it has weights.
    """

    def __init__(self, layers: int, *, learned: bool) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers)) if learned else None
        self.gamma = nn.Parameter(torch.ones(1)) if learned else None

    def forward(self, layers: list[Tensor]) -> Tensor:
        """Return the mix of layers of shape (batch, tokens, hidden)."""
        stacked = torch.stack(layers, dim=-1)
        if self.weights is None or self.gamma is None:
            return stacked.mean(-1)
        return self.gamma * (stacked @ self.weights.softmax(-1))


class Elmo(nn.Module):
    """The trunk with the mix of its layers.

    Args:
        config: the family's configuration.
        mix: leave the mix out if false.
    """

    def __init__(self, config: ElmoConfig, *, mix: bool = True) -> None:
        super().__init__()
        self.embeddings = CharacterEncoder(config)
        self.layers = nn.ModuleList(BidirectionalLstm(config, k) for k in range(config.lstm_layers))
        if mix:
            self.layers.append(Mix(config.lstm_layers + 1, learned=config.mix))

    def backbone(
        self, character_ids: Tensor, attention_mask: Tensor | None, state: RecurrentState | None
    ) -> list[Tensor]:
        """Return the word vectors and what each LSTM layer returns; see ``forward``."""
        mask = (character_ids > 0).any(-1)
        if attention_mask is not None:
            mask = mask & (attention_mask > 0)
        return self.above(self.embeddings(character_ids) * mask.unsqueeze(-1), mask, state)

    def above(self, vectors: Tensor, mask: Tensor, state: RecurrentState | None) -> list[Tensor]:
        """Return the word vectors and what each LSTM layer makes of them.

        Args:
            vectors: (batch, tokens, hidden): what the LSTMs from the left read, and beside it
                what those from the right read.
            mask: (batch, tokens), true where there is a word.
            state: see ``forward``.
        """
        found, state = [vectors], state or RecurrentState()
        for layer in self.layers:
            if isinstance(layer, BidirectionalLstm):
                found.append(layer(found[-1], mask, state))
        return found

    def forward(
        self,
        character_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: RecurrentState | None = None,
    ) -> dict[str, Tensor]:
        """Return the outputs of the head by name.

        Args:
            character_ids: (batch, tokens, characters), int64; a word of zeros is padding.
            attention_mask: (batch, tokens), 1 where there is a word; where it is left out, every
                word that is not padding counts.
            state: of what the batch before ended with; ``None`` begins with zeros.
        """
        return self.outputs(self.backbone(character_ids, attention_mask, state))

    def outputs(self, layers: list[Tensor]) -> dict[str, Tensor]:
        """Return the head's outputs, from all layers."""
        return {"last_hidden_state": self.layers[-1](layers)}


class LanguageModel(Elmo):
    """The head of pretraining: the word after each word, and the one before it.

    Args:
        config: the family's configuration.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config, mix=False)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.projection_size, config.vocab_size)

    def outputs(self, layers: list[Tensor]) -> dict[str, Tensor]:
        """See ``Elmo``."""
        onward, back = self.directions(layers)
        return {"forward_logits": self.head(onward), "backward_logits": self.head(back)}

    def directions(self, layers: list[Tensor]) -> tuple[Tensor, ...]:
        """Return what the head sees from the left and from the right, (batch, tokens, width)."""
        return self.dropout(layers[-1]).chunk(2, dim=-1)  # type: ignore[no-any-return]


_HEADS: dict[str, type[Elmo]] = {"none": Elmo, "bidirectional-lm": LanguageModel}


def build(config: ElmoConfig, head: str) -> Elmo:
    """Return a model with fresh weights, drawn as the released code draws them."""
    model, draw = _HEADS[head](config), partial(_draw, config)
    if isinstance(model, LanguageModel):
        draw(model.head)
    model.embeddings.apply(draw)
    model.layers.apply(draw)
    return model


def _draw(config: ElmoConfig, module: nn.Module) -> None:
    """Draw a module's own weights; those of the modules in it are drawn before."""
    match module:
        case nn.Embedding():
            nn.init.uniform_(module.weight, -1.0, 1.0)
        case nn.Conv2d() if config.activation == "relu":
            nn.init.uniform_(module.weight, -0.05, 0.05)
        case nn.Conv2d() | nn.Linear():
            nn.init.normal_(module.weight, std=math.sqrt(1 / module.weight[0].numel()))
        case Highway():
            nn.init.constant_(module.carry.bias, -2.0)  # at first, a word passes as it is
        case ProjectedLstm():
            nn.init.xavier_uniform_(module.kernel)
            if module.projection is not None:
                nn.init.xavier_uniform_(module.projection)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
