"""The configuration of BigBird-Pegasus and the keys of its config.json."""

from typing import Literal

from zoo.families.config import Activation, ConfigMap, same_names
from zoo.families.seq2seq import FIXED, IGNORED, KEYS, Seq2SeqConfig


class BigBirdPegasusConfig(Seq2SeqConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a BigBird-Pegasus; the defaults are ``large`` and the Hub's."""

    vocab_size: int = 96103
    num_layers: int = 16
    intermediate_size: int = 4096
    decoder_layers: int = 16
    max_positions: int = 4096
    activation: Activation = "gelu_new"
    scale_embedding: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 1
    # ``original_full`` for full attention of the encoder at all lengths
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"
    block_size: int = 64  # number of tokens of a block of the encoder's attention
    num_random_blocks: int = 3  # number of random blocks of keys for each block of queries
    use_bias: bool = False  # whether the linear maps of attention have biases
    classifier_dropout: float = 0.0  # dropout probability in the head for sequences


CONFIG_MAP = ConfigMap(
    keys={
        **KEYS,
        **same_names("attention_type", "block_size", "num_random_blocks", "use_bias"),
        "classifier_dropout": "classifier_dropout",
    },
    fixed=FIXED,
    ignored=IGNORED,
    aliases={"attention_probs_dropout_prob": "attention_dropout"},
)
SIZES = {
    # Sources of more than 28 tokens have block-sparse attention.
    "tiny": BigBirdPegasusConfig.sized(
        2, 128, vocab_size=1000, max_positions=128, block_size=4, num_random_blocks=1
    ),
    "large": BigBirdPegasusConfig(),
}
