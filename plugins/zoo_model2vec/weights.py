"""The table of static embeddings: its names in model2vec and sentence-transformers, and ours."""

from zoo.weights import Rule, WeightMap
from zoo_model2vec.config import Model2VecConfig


def weights(config: Model2VecConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    shape = (config.vocab_size, config.hidden_size)
    # sentence-transformers names the table of its ``EmbeddingBag``, and reads both names
    return WeightMap(
        rules=[Rule("embeddings", "embeddings.weight", shape)],
        legacy={"embedding.weight": "embeddings"},
    )
