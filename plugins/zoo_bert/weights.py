"""Weight rules of BERT: the Hub's names and ours."""

from collections.abc import Collection

from zoo.weights import Ignore, WeightMap
from zoo.weights.encoder_rules import backbone_rules, module_rule
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head, with_pairs
from zoo.weights.releases import ReleaseTensor, tf_encoder_name
from zoo_bert.config import PAIR_CLASSES, BertConfig

# TinyBERT (arXiv:1909.10351, equation 9) ships them
_FITTED = Ignore(
    "fit_denses.{j}.{p}", "a projection to the teacher's width, only used in distillation"
)
_NAMES = HeadNames(MaskedNames(), pooler="bert.pooler.dense")


def weights(config: BertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    base = backbone_rules(
        config, "bert.", counts={"i": config.num_layers, "j": config.num_layers + 1}
    )
    base = base.plus(drops=[_FITTED])
    if head in PAIR_CLASSES:
        classes = PAIR_CLASSES[head]
        next_sentence = module_rule(
            "cls.seq_relationship", "head.next_sentence", classes, config.hidden_size
        )
        return with_pairs(base, config, _NAMES, next_sentence)
    return with_head(base, config, head, _NAMES)


def from_tensorflow(names: Collection[str], head: str) -> dict[str, ReleaseTensor]:
    """Return the Hub names of Google's release, which has the names of ``modeling.py``."""
    return {name: tf_encoder_name(name) for name in names}
