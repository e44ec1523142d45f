"""BigBird's configuration and the keys of its Hub configuration."""

from typing import Literal

from zoo.families.config import Activation, ConfigMap, same_names
from zoo.families.encoder import CLASSIFIER_KEYS, FIXED, PooledEncoderConfig


class BigBirdConfig(PooledEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a BigBird; the defaults are ``base`` and the Hub's."""

    vocab_size: int = 50358
    activation: Activation = "gelu_new"
    max_positions: int = 4096
    # the first one to end a question, whose tokens never begin or end an answer
    sep_token_id: int = 66
    # ``original_full`` for full attention of rows of all lengths
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"
    block_size: int = 64  # number of tokens of a block
    num_random_blocks: int = 3  # number of random blocks of keys for each block of queries
    use_bias: bool = True  # whether the maps to queries, keys and values have biases
    scale_embedding: bool = False  # whether token embeddings are scaled by the root of their width

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type_vocab_size < 2:
            raise ValueError("type_vocab_size is 1, and questions and texts are of two types")


SPECIAL_TOKENS = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "[SEP]",
    "pad": "<pad>",
    "cls": "[CLS]",
    "mask": "[MASK]",
}
# Heads for which the Hub's class has a pooler that it does not read.
UNUSED_POOLER_HEADS = ("masked-lm", "sequence-classification", "token-classification")
CONFIG_MAP = ConfigMap(
    keys={
        **CLASSIFIER_KEYS,
        **same_names("attention_type", "block_size", "num_random_blocks", "use_bias"),
        "sep_token_id": "sep_token_id",
        "rescale_embeddings": "scale_embedding",
    },
    fixed=FIXED,
)
SIZES = {
    # Rows of more than 28 tokens have block-sparse attention.
    "tiny": BigBirdConfig.sized(
        2,
        128,
        vocab_size=1000,
        max_positions=128,
        sep_token_id=5,
        block_size=4,
        num_random_blocks=1,
    ),
    "base": BigBirdConfig.sized(12, 768),
    "large": BigBirdConfig.sized(24, 1024),
}
