"""Weight rules of ERNIE: the Hub's names and ours."""

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder_rules import backbone_rules
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_ernie.config import ErnieConfig

_PREFIX = "ernie."
_HEADS = HeadNames(MaskedNames(), pooler=_PREFIX + "pooler.dense")


def weights(config: ErnieConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = backbone_rules(config, _PREFIX)
    if config.use_task_id:
        table = (config.task_type_vocab_size, config.hidden_size)
        source = _PREFIX + "embeddings.task_type_embeddings.weight"
        backbone = backbone.plus(Rule(source, "embeddings.tasks.weight", table))
    return with_head(backbone, config, head, _HEADS)
