"""Static embeddings: a vector for each token, whose mean is the embedding of a text.

Tulkens and van Dongen 2024, "Model2Vec: Fast State-of-the-Art Static Embeddings"; the module
``StaticEmbedding`` of sentence-transformers computes the same. There is no layer, so that a text
takes as long as its tokenization.
"""

from torch import Tensor, nn

from zoo.nn.kernels.embedding import Embedding
from zoo.nn.layers.init import init_weights
from zoo.overrides import override
from zoo_model2vec.config import Model2VecConfig


class StaticEmbeddings(nn.Module):
    """A table of vectors."""

    def __init__(self, config: Model2VecConfig) -> None:
        super().__init__()
        self.embeddings = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList()
        self.skipped = config.skipped_token_id

    @override
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return ``last_hidden_state``, (batch, tokens, hidden): a vector for each token.

        The token that is left out has a vector of zeros, and the others are scaled, so that the
        mean of all vectors is the mean of these others.
        """
        vectors = self.embeddings(input_ids)
        if self.skipped is None:
            return {"last_hidden_state": vectors}
        mask = input_ids.new_ones(input_ids.shape) if attention_mask is None else attention_mask
        kept = mask * (input_ids != self.skipped)
        scale = mask.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1)
        return {"last_hidden_state": vectors * (kept * scale).to(vectors.dtype)[..., None]}


def build(config: Model2VecConfig, head: str) -> StaticEmbeddings:
    """Return a model with randomly initialized vectors."""
    model = StaticEmbeddings(config)
    init_weights(model, std=config.initializer_range)
    return model
