"""Weight rules of RoBERTa: the Hub's names and ours."""

from zoo.weights import WeightMap
from zoo.weights.encoder_rules import backbone_rules
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_roberta.config import RobertaConfig

_NAMES = HeadNames(
    masked=MaskedNames(
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        decoder="lm_head.decoder",
        bias="lm_head.bias",
    ),
    pooler="roberta.pooler.dense",
    text=("classifier.dense", "classifier.out_proj"),
    choice=("classifier",),
)


def weights(config: RobertaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    return with_head(backbone_rules(config, "roberta."), config, head, _NAMES)
