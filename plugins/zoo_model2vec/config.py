"""The configuration of static embeddings, and the keys of model2vec's ``config.json``."""

from zoo.families.config import Config, ConfigMap


class Model2VecConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of static embeddings.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the vectors.
        skipped_token_id: the token that is left out of the mean of a text, which model2vec does
            with the unknown token and sentence-transformers with none; ``None`` for none.
        initializer_range: standard deviation of initial vectors.
    """

    vocab_size: int
    hidden_size: int = 256
    skipped_token_id: int | None = None
    initializer_range: float = 0.02


CONFIG_MAP = ConfigMap(
    keys={
        "vocab_size": "vocab_size",
        "hidden_dim": "hidden_size",
        "skipped_token_id": "skipped_token_id",
    },
    fixed={
        "vocabulary_quantization": (None,),
        "embedding_dtype": (None, "float32", "float16", "float64", "bfloat16"),
        "head_config": (None, {}),
    },
    ignored={
        "normalize": "the module Normalize of modules.json says the same",
        "max_length": "the number of tokens that texts are truncated to; written from it",
        "seq_length": "the library reads it no more",
        "tokenizer_name": "provenance",
        "pooling": "how the vectors were made",
        "apply_pca": "how the vectors were made",
        "apply_zipf": "how the vectors were made",
        "sif_coefficient": "how the vectors were made",
    },
)

# of the released models
SIZES = {
    "tiny": Model2VecConfig(vocab_size=1000, hidden_size=32),
    "potion-2m": Model2VecConfig(vocab_size=29528, hidden_size=64),
    "potion-4m": Model2VecConfig(vocab_size=29528, hidden_size=128),
    "potion-8m": Model2VecConfig(vocab_size=29528, hidden_size=256),
    "retrieval-mrl-en": Model2VecConfig(vocab_size=30522, hidden_size=1024),
}
