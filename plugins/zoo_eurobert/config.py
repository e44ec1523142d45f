"""EuroBERT's configuration and the keys of its Hub configuration."""

from typing import ClassVar, Literal

from zoo.families.config import Activation, ConfigMap, same_names
from zoo.families.config.keys import COMMON
from zoo.families.config.rope import (
    GROUP,
    OLD_GROUP,
    OLD_ROPE_KEYS,
    RopeConfig,
    refused_rope_keys,
    rope_keys,
    rope_values,
    unsaid_rope_keys,
)


class EuroBertConfig(RopeConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a EuroBERT; the defaults are the Hub's.

    Attributes:
        num_kv_heads: number of heads of keys and values; ``None`` for ``num_heads``.
        rope_theta: base of the rotary frequencies.
        classifier_pooling: what a classifier of texts reads: the first token (``bos``), the mean of
            the tokens (``mean``), or each token, whose logits it averages (``late``).
        layer_norm_eps: epsilon of the norms.
        dropout: dropout probability of what is added to the residual path: none.
    """

    dropout: ClassVar[float] = 0.0

    vocab_size: int = 128256
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    num_kv_heads: int | None = None
    intermediate_size: int = 3072
    max_positions: int = 8192
    activation: Activation = "silu"
    rope_theta: float = 10_000.0
    classifier_pooling: Literal["bos", "mean", "late"] = "late"
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = 128001
    tie_embeddings: bool = False


THETA = {"rope_parameters.rope_theta": "rope_theta"}
CONFIG_MAP = ConfigMap(
    keys={
        **COMMON,
        **same_names("vocab_size", "intermediate_size", "rope_theta", "attention_dropout"),
        **same_names("initializer_range", "pad_token_id", "classifier_pooling"),
        "num_key_value_heads": "num_kv_heads",
        "hidden_act": "activation",
        "rms_norm_eps": "layer_norm_eps",
        "tie_word_embeddings": "tie_embeddings",
        **rope_keys(),
    },
    fixed={
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "hidden_dropout": (0.0, None),
        **refused_rope_keys(GROUP, OLD_GROUP),
    },
    values=rope_values(),
    follows={"head_dim": "head_size"},
    ignored={
        "auto_map": "the code that the Hub's library had before it had these classes",
        "pretraining_tp": "chooses how a product is computed, not its value",
        "clm": "the published code reads it nowhere",
        "bos_token": "the tokenizer decides",
        "eos_token": "the tokenizer decides",
        "mask_token": "the tokenizer decides",
        "pad_token": "the tokenizer decides",
    },
    aliases={**THETA, **OLD_ROPE_KEYS},
    unsaid=unsaid_rope_keys(),
    both=THETA.keys(),  # The published code reads the key, transformers 5 writes this.
)

# Boizard et al. 2025, arXiv:2503.05500, table 3. The rotary base is the one of the annealing phase.
SIZES = {
    "tiny": EuroBertConfig(
        vocab_size=1000,
        hidden_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        intermediate_size=256,
        max_positions=512,
        pad_token_id=2,
    ),
    "210m": EuroBertConfig(num_kv_heads=12, rope_theta=250_000.0),
    "610m": EuroBertConfig(
        hidden_size=1152,
        num_layers=26,
        num_heads=18,
        num_kv_heads=6,
        intermediate_size=4096,
        rope_theta=250_000.0,
    ),
    "2.1b": EuroBertConfig(
        hidden_size=2304,
        num_layers=32,
        num_heads=18,
        num_kv_heads=6,
        intermediate_size=6144,
        rope_theta=250_000.0,
    ),
}
