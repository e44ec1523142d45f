"""Weight rules of BigBird: the Hub's names and ours."""

from dataclasses import replace

from zoo.weights import Ignore, WeightMap
from zoo.weights.encoder_rules import BlockNames, backbone_rules, block_rules, module_rule
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head, with_pairs
from zoo_bigbird.config import UNUSED_POOLER_HEADS, BigBirdConfig

_PREFIX = "bert."
_POOLER = f"{_PREFIX}pooler"
_NAMES = HeadNames(
    MaskedNames(),
    pooler=_POOLER,
    text=("classifier.dense", "classifier.out_proj"),
    choice=("classifier",),
)


def weights(config: BigBirdConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    blocks = block_rules(
        config, BlockNames(), f"{_PREFIX}encoder.layer.{{i}}.", qkv_bias=config.use_bias
    )
    base = backbone_rules(config, _PREFIX, blocks=blocks)
    if head == "pretraining":
        is_next = module_rule("cls.seq_relationship", "head.next_sentence", 2, width)
        return with_pairs(base, config, _NAMES, is_next)
    if head == "question-answering":
        return _with_answers(base, config)
    if head not in UNUSED_POOLER_HEADS:
        return with_head(base, config, head, _NAMES)
    model = with_head(base, config, head, replace(_NAMES, pooler=""))
    if not config.pooler:
        return model
    pooler = module_rule(_POOLER, "unused_pooler", width, width)
    return model.plus(replace(pooler, optional="pooler"))


def _with_answers(weights: WeightMap, config: BigBirdConfig) -> WeightMap:
    """Return the rules of a backbone with the head for question answering."""
    width = config.hidden_size
    inner = config.intermediate_size
    source = "qa_classifier."
    unused = Ignore(f"{_POOLER}.{{p}}", "the Hub's class for this head has no pooler")
    return weights.plus(
        module_rule(f"{source}intermediate.dense", "head.ffn.up", inner, width),
        module_rule(f"{source}output.dense", "head.ffn.down", width, inner),
        module_rule(f"{source}output.LayerNorm", "head.norm", width),
        module_rule(f"{source}qa_outputs", "head.out", 2, width),
        drops=[unused],
    )
