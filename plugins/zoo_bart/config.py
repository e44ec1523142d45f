"""BART's configuration and the keys of its Hub configuration."""

from dataclasses import replace
from typing import Literal

from zoo.families.config import ConfigMap
from zoo.families.seq2seq import FIXED, IGNORED, KEYS, Seq2SeqConfig

POSITION_OFFSET = 2  # rows of the tables of positions before the first position


class BartConfig(Seq2SeqConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a BART; the defaults describe ``large``, as on the Hub."""

    # the Hub's ``model_type``; ``mbart`` has norms before each part of a block and after the last
    model_type: Literal["bart", "mbart"] = "bart"
    classifier_dropout: float = 0.0  # dropout probability in the head for sequences
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1", "LABEL_2")


SPECIAL_TOKENS = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}
CONFIG_MAP = ConfigMap(
    keys={**KEYS, "classifier_dropout": "classifier_dropout"},
    # settings of the implementation before transformers 3.4, which relatives of BART shared
    fixed={
        **FIXED,
        "normalize_before": (None, False),
        "normalize_embedding": (None, True),
        "add_final_layer_norm": (None, False),
        "static_position_embeddings": (None, False),
        "extra_pos_embeddings": (None, 2),
        "do_blenderbot_90_layernorm": (None, False),
    },
    ignored=IGNORED,
    supplied={"forced_eos_token_id": 2},
)
_PRE_NORM = {"normalize_before": (None, True), "add_final_layer_norm": (None, True)}
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
