"""The configuration of LSTM language models, and the keys of their ``config.json``."""

from zoo.families.config import Config, ConfigMap, same_names


class LstmConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an LSTM language model; the defaults are those of Dai and Le 2015."""

    embedding_size: int = 512  # width of the token embeddings, which the first layer reads
    hidden_size: int = 1024  # width of the hidden state and of the cell of each layer
    num_layers: int = 1  # number of layers
    dropout: float = 0.0  # dropout probability of the output of each layer, as others read it
    embedding_dropout: float = 0.0  # dropout probability of the values of the token embeddings
    word_dropout: float = 0.0  # probability with which a token is read as a vector of zeros
    # dropout probability of the state that a classifier reads; ``None`` for ``dropout``
    classifier_dropout: float | None = None
    initializer_range: float = 0.05  # standard deviation of initial embeddings and heads
    tie_embeddings: bool = False  # use the token embeddings as output embeddings
    logits_bias: bool = True  # whether the logits of the language model have a bias

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = f"{self.embedding_size} and {self.hidden_size}"
        self.refuse({
            f"tied embeddings have one width, and embedding_size and hidden_size are {widths}":
                self.tie_embeddings and self.embedding_size != self.hidden_size,
        })  # fmt: skip


# No library defines a ``config.json`` for these models. Keys that transformers has elsewhere are
# spelled in the same way.
CONFIG_MAP = ConfigMap(
    keys={
        **same_names(
            "vocab_size",
            "embedding_size",
            "hidden_size",
            "dropout",
            "embedding_dropout",
            "word_dropout",
            "classifier_dropout",
            "initializer_range",
            "logits_bias",
        ),
        "num_hidden_layers": "num_layers",
        "tie_word_embeddings": "tie_embeddings",
    },
)


SIZES = {
    "tiny": LstmConfig(vocab_size=1000, embedding_size=64, hidden_size=128),
    "base": LstmConfig(vocab_size=30_000),
}
