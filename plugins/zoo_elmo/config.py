"""ELMo's configuration and the keys of its ``options.json``."""

from typing import Final, Literal

from msgspec.structs import replace

from zoo.families.config import Config, ConfigMap

CHARACTERS: Final = 262  # 256 bytes, 5 marks (see zoo_elmo.characters), and 0 for "no character"
PAPER = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
WORDS = 793_471  # of the 1 Billion Word Benchmark

_OF_TRAINING = (
    "all_clip_norm_val",
    "batch_size",
    "n_epochs",
    "n_negative_samples_batch",
    "n_train_tokens",
    "unroll_steps",
)


class ElmoConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an ELMo; with the defaults of absent keys in ``options.json``."""

    # number of words that pretraining predicts; 0 for none. The input has no vocabulary: a word is
    # its characters
    vocab_size: int = 0
    characters: Literal[262] = CHARACTERS  # number of character ids
    character_size: int  # width of the character embeddings
    # (width in characters, number of filters) of each convolution
    filters: tuple[tuple[int, int], ...]
    highways: int = 0  # number of highway layers after the convolutions
    activation: Literal["relu", "tanh"]  # activation function of the convolutions
    max_characters: int = 50  # number of character ids per word, with marks and padding
    lstm_layers: int
    lstm_size: int  # width of the cells
    # width of the word embeddings and of the LSTMs' outputs, without a projection if it is
    # ``lstm_size``
    projection_size: int
    cell_clip: float | None = None  # largest magnitude of a cell; ``None`` for no limit
    # largest magnitude of the projected output; ``None`` for no limit
    projection_clip: float | None = None
    skip_connections: bool = False  # add the input of every LSTM layer but the first to its output
    # dropout probability of the input of every LSTM layer, and of the last output
    dropout: float = 0.0
    mix: bool = True  # whether the mix of the layers has weights; without, it is their mean

    def __post_init__(self) -> None:
        super().__post_init__()
        filters = self.filters
        longest = self.max_characters
        size = self.lstm_size
        self.refuse({
            f"filters are {filters}, which leaves a word without a vector":
                not filters or any(width < 1 or count < 1 for width, count in filters),
            f"a filter is wider than max_characters, {longest}":
                any(width > longest for width, _ in filters),
            "max_characters leaves no room between the marks of a word": longest < 3,
            f"projection_size {self.projection_size} is over lstm_size {size}":
                self.projection_size > size,
        })  # fmt: skip

    @property
    def filter_count(self) -> int:
        """Number of all filters, the width of a word before its projection."""
        return sum(count for _, count in self.filters)

    @property
    def hidden_size(self) -> int:
        """Width of every layer: both directions, concatenated."""
        return 2 * self.projection_size

    @property
    def num_layers(self) -> int:
        """Number of layers after the word embeddings: the LSTMs and the mix."""
        return self.lstm_layers + 1


CONFIG_MAP = ConfigMap(
    keys={
        "char_cnn.n_characters": "characters",
        "char_cnn.embedding.dim": "character_size",
        "char_cnn.filters": "filters",
        "char_cnn.n_highway": "highways",
        "char_cnn.activation": "activation",
        "char_cnn.max_characters_per_token": "max_characters",
        "lstm.n_layers": "lstm_layers",
        "lstm.dim": "lstm_size",
        "lstm.projection_dim": "projection_size",
        "lstm.cell_clip": "cell_clip",
        "lstm.proj_clip": "projection_clip",
        "lstm.use_skip_connections": "skip_connections",
        "n_tokens_vocab": "vocab_size",
        "dropout": "dropout",
    },
    fixed={"bidirectional": (True,), "sample_softmax": (True, False)},
    ignored=dict.fromkeys(_OF_TRAINING, "used in training only"),
    # training has no padding id: 261 is the same table
    values={"char_cnn.n_characters": {CHARACTERS: CHARACTERS, CHARACTERS - 1: CHARACTERS}},
    unsaid=("lstm.cell_clip", "lstm.proj_clip", "n_tokens_vocab", "dropout"),
)


def _released(size: int, projection: int, highways: int) -> ElmoConfig:
    return ElmoConfig(
        character_size=16,
        filters=PAPER,
        highways=highways,
        activation="relu",
        lstm_layers=2,
        lstm_size=size,
        projection_size=projection,
        cell_clip=3.0,
        projection_clip=3.0,
        skip_connections=True,
        vocab_size=WORDS,
        dropout=0.1,
    )


SIZES = {
    "tiny": replace(
        _released(24, 10, 2),
        character_size=4,
        filters=((1, 4), (2, 8), (3, 16)),
        max_characters=12,
        vocab_size=50,
    ),
    "small": _released(1024, 128, 1),
    "medium": _released(2048, 256, 1),
    "original": _released(4096, 512, 2),
}
