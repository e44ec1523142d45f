"""BART's configuration and the keys of its Hub configuration."""

from dataclasses import replace
from typing import Literal

from zoo.families.config import ConfigMap
from zoo.families.seq2seq import FIXED, IGNORED, KEYS, Seq2SeqConfig, relative_keys

POSITION_OFFSET = 2  # rows of the tables of positions before the first position


class BartConfig(Seq2SeqConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a BART; the defaults describe ``large``, as on the Hub."""

    # the Hub's ``model_type``; ``mbart`` has norms before each part of a block and after the last
    model_type: Literal["bart", "mbart"] = "bart"
    classifier_dropout: float = 0.0  # dropout probability in the head for sequences
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1", "LABEL_2")


CONFIG_MAP = ConfigMap(
    keys={**KEYS, "classifier_dropout": "classifier_dropout"},
    fixed={
        **FIXED,
        **relative_keys(pre_norm=False, embedding_norm=True, sinusoidal=False),
        "extra_pos_embeddings": (None, 2),
        "do_blenderbot_90_layernorm": (None, False),
    },
    ignored=IGNORED,
    supplied={"forced_eos_token_id": 2},
)
_PRE_NORM = relative_keys(pre_norm=True, embedding_norm=True, sinusoidal=False)
CONFIG_MAPS = {
    "mbart": replace(
        CONFIG_MAP, fixed={**CONFIG_MAP.fixed, **_PRE_NORM}, implied={"model_type": "mbart"}
    )
}
SIZES = {
    "tiny": BartConfig.sized(2, 128, vocab_size=1000, max_positions=64),
    "base": BartConfig.sized(6, 768, activation_dropout=0.1, attention_dropout=0.1),
    "large": BartConfig.sized(12, 1024, activation_dropout=0.1, attention_dropout=0.1),
}
