"""BERT's tensors: the Hub's names and ours."""

from collections.abc import Collection

from zoo.foreign import Foreign, tensorflow_name
from zoo.weights import Drop, WeightMap
from zoo.weights.encoder import module_rule, trunk
from zoo.weights.heads import HeadNames, MaskedNames, with_head, with_pairs
from zoo_bert.config import BertConfig

# TinyBERT (arXiv:1909.10351, equation 9) ships them
_FITTED = Drop(
    "fit_denses.{j}.{p}", "maps a student's vectors to its teacher's width, in distillation alone"
)
_NAMES = HeadNames(MaskedNames(), pooler="bert.pooler.dense")


def weights(config: BertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    base = trunk(config, "bert.", counts={"i": config.num_layers, "j": config.num_layers + 1})
    base = base.plus(drops=[_FITTED])
    if head == "pretraining":
        follows = module_rule("cls.seq_relationship", "head.next_sentence", 2, config.hidden_size)
        return with_pairs(base, config, _NAMES, follows)
    return with_head(base, config, head, _NAMES)


def from_tensorflow(names: Collection[str], head: str) -> dict[str, Foreign]:
    """Say what the tensors of Google's release are; its names are those of ``modeling.py``."""
    return {name: tensorflow_name(name) for name in names}
