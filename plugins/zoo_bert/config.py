"""BERT's configuration and the keys of its Hub configuration."""

from zoo.families.config import ConfigMap
from zoo.families.encoder import CLASSIFIER_KEYS, FIXED, PooledEncoderConfig


class BertConfig(PooledEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a BERT; with the defaults of ``base`` and of the Hub."""


# Number of classes of pairs of segments. 0, the second one follows, and 1, it is from another
# document; of StructBERT also 2, it precedes the first one.
PAIR_CLASSES = {"pretraining": 2, "structural-pretraining": 3}

_RELEASE = "written by the first release; no implementation reads it"
_STUDENT = "written by the distillation of TinyBERT; no implementation reads it"
CONFIG_MAP = ConfigMap(
    keys=CLASSIFIER_KEYS,
    fixed=FIXED,
    ignored={
        "directionality": _RELEASE,
        "pooler_fc_size": _RELEASE,
        "pooler_num_attention_heads": _RELEASE,
        "pooler_num_fc_layers": _RELEASE,
        "pooler_size_per_head": _RELEASE,
        "pooler_type": _RELEASE,
        "cell": _STUDENT,
        "emb_size": _STUDENT,
        "pre_trained": _STUDENT,
        "structure": _STUDENT,
    },
)


SIZES = {
    "tiny": BertConfig.sized(2, 128),
    "mini": BertConfig.sized(4, 256),
    "small": BertConfig.sized(4, 512),
    "medium": BertConfig.sized(8, 512),
    "base": BertConfig.sized(12, 768),
    "large": BertConfig.sized(24, 1024),
    "base-cased": BertConfig.sized(12, 768, vocab_size=28996),
    "large-cased": BertConfig.sized(24, 1024, vocab_size=28996),
    "base-multilingual-cased": BertConfig.sized(12, 768, vocab_size=119547),
    "base-multilingual-uncased": BertConfig.sized(12, 768, vocab_size=105879),
    "base-chinese": BertConfig.sized(12, 768, vocab_size=21128),
}
