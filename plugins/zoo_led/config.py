"""LED's configuration and the keys of its Hub configuration."""

from zoo.families.config import ConfigMap, same_names
from zoo.families.global_tokens import GlobalTokenChoice, check_global_tokens, check_windows
from zoo.families.seq2seq import FIXED, IGNORED, KEYS, Seq2SeqConfig


class LEDConfig(Seq2SeqConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an LED; the defaults describe ``large``, as on the Hub."""

    max_positions: int = 16384  # largest number of tokens of a source
    max_decoder_positions: int = 1024  # largest number of tokens of a target
    # number of tokens of a window without the one in its middle, of all blocks of the encoder or
    # of each
    attention_window: int | tuple[int, ...] = 512
    sep_token_id: int = 2  # the token that ends a text
    # the tokens of a source with global attention: ``none``, ``first``, ``question``, ``choice``,
    # ``separators`` or positions; ``task`` for the first
    global_tokens: GlobalTokenChoice = "task"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self.attention_window, self.num_layers)
        check_global_tokens(self.global_tokens, self.max_positions)


_KEYS = dict(KEYS)
del _KEYS["max_position_embeddings"]  # It has one for each stack.
del _KEYS["scale_embedding"]
CONFIG_MAP = ConfigMap(
    keys={
        **_KEYS,
        **same_names("attention_window", "sep_token_id", "global_tokens"),
        "max_encoder_position_embeddings": "max_positions",
        "max_decoder_position_embeddings": "max_decoder_positions",
    },
    fixed={**FIXED, "scale_embedding": (None, False), "attention_dilation": (None, 1)},
    ignored={
        **IGNORED,
        "classifier_dropout": "of a classifier, which transformers has no more",
        "onnx_export": "a setting of an exporter",
    },
    # Other spellings, which the class of transformers reads as well.
    aliases={
        "attention_probs_dropout_prob": "attention_dropout",
        "initializer_range": "initializer_range",
    },
    unsaid=("global_tokens", "sep_token_id"),
)
SIZES = {
    "tiny": LEDConfig.sized(
        2, 128, vocab_size=1000, max_positions=256, max_decoder_positions=64, attention_window=32
    ),
    "base": LEDConfig.sized(6, 768, attention_window=1024),
    "large": LEDConfig.sized(12, 1024, attention_window=1024),
}
