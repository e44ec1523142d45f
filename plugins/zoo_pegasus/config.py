"""The configuration of PEGASUS and the keys of its config.json."""

from zoo.families.config import ConfigMap
from zoo.families.seq2seq import FIXED, IGNORED, KEYS, Seq2SeqConfig, relative_keys


class PegasusConfig(Seq2SeqConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a PEGASUS; the defaults are the Hub's."""

    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0


CONFIG_MAP = ConfigMap(
    keys=KEYS,
    fixed={
        **FIXED,
        **relative_keys(pre_norm=True, embedding_norm=False, sinusoidal=True),
        "extra_pos_embeddings": (None, 0, 1),
    },
    ignored={**IGNORED, "classifier_dropout": "the family has no classifier"},
    supplied={"forced_eos_token_id": 1},
)
SIZES = {
    "tiny": PegasusConfig.sized(
        2, 128, vocab_size=1000, max_positions=64, activation="relu", scale_embedding=True
    ),
    # section 6.1
    "base": PegasusConfig.sized(
        12, 768, vocab_size=96103, max_positions=512, activation="relu", scale_embedding=True
    ),
    "large": PegasusConfig.sized(
        16, 1024, vocab_size=96103, max_positions=1024, activation="relu", scale_embedding=True
    ),
}
