"""Weight rules of DeBERTa: the Hub's names and ours."""

from zoo.weights import DeinterleaveQKV, Ignore, Rule, WeightMap
from zoo.weights.encoder_rules import BlockNames, backbone_rules, block_rules, module_rule
from zoo.weights.head_rules import HeadNames, MaskedNames, mlm_head_rules, with_head
from zoo_deberta.config import DebertaConfig

_LAYER = "deberta.encoder.layer.{i}."
_SELF = f"{_LAYER}attention.self."
_BLOCK = BlockNames(
    query="attention.self.query_proj",
    key="attention.self.key_proj",
    value="attention.self.value_proj",
)
_POSITIONS = "deberta.embeddings.position_embeddings.weight"
_NO_DECODER = Ignore(_POSITIONS, "absolute positions, only used by masked-LM heads")
# Version 3 was trained with gradient-disentangled embeddings, the generator's plus a difference;
# some files store both difference and sum (replaced_token_detection_model.py).
_ADDED = [
    Ignore(
        f"deberta.embeddings.{table}_embeddings._weight",
        "the difference to the generator's; the sum is stored",
    )
    for table in ("word", "position")
]
# files have one of two names for the masked-LM head, and the older one for its decoder
_PRESENT = MaskedNames(
    dense="lm_predictions.lm_head.dense",
    norm="lm_predictions.lm_head.LayerNorm",
    bias="lm_predictions.lm_head.bias",
)
_OLD = MaskedNames()


def weights(config: DebertaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    blocks = _relative(config) + _blocks(config)
    base = backbone_rules(config, "deberta.", positions=config.position_biased_input, blocks=blocks)
    base = base.plus(drops=_ADDED)
    if head in ("masked-lm", "pretraining"):
        masked = _masked(base, config)
        return masked if head == "masked-lm" else masked.plus(*_replaced("replaced", config))
    if not config.position_biased_input:
        base = base.plus(drops=[_NO_DECODER])
    if head == "replaced-token-detection":
        return base.plus(*_replaced("head", config))
    return with_head(base, config, head, HeadNames(_PRESENT, pooler="pooler.dense"))


def _relative(config: DebertaConfig) -> list[Rule]:
    """Return the rules of relative positions and convolution, which are not part of each block."""
    width = config.hidden_size
    encoder = "deberta.encoder."
    rules = []
    if config.relative_attention:
        table = encoder + "rel_embeddings.weight"
        rules.append(Rule(table, "relative.weight", (2 * config.reach, width)))
    if config.norms_positions:
        rules.append(module_rule(encoder + "LayerNorm", "relative_norm", width))
    if config.conv_kernel_size:
        shape = (width, width // config.conv_groups, config.conv_kernel_size)
        rules.append(module_rule(encoder + "conv.conv", "layers.0.conv", *shape))
        rules.append(module_rule(encoder + "conv.LayerNorm", "layers.0.conv_norm", width))
    return rules


def _blocks(config: DebertaConfig) -> list[Rule]:
    """Return the rules of the blocks; version 1 stores their projections in another layout."""
    width = config.hidden_size
    attention = "layers.{i}.attention."
    square = (width, width)
    joined, *others = block_rules(config, _BLOCK, _LAYER)
    if config.key_bias:
        projections = [joined]
        keys = module_rule(_SELF + "pos_key_proj", attention + "position_key", *square)
        queries = module_rule(_SELF + "pos_query_proj", attention + "position_query", *square)
    else:
        by_head = DeinterleaveQKV(config.num_heads)
        projections = [
            Rule(_SELF + "in_proj.weight", attention + "qkv.weight", (3 * width, width), by_head),
            Rule(_SELF + "q_bias", attention + "qkv.query_bias", (width,)),
            Rule(_SELF + "v_bias", attention + "qkv.value_bias", (width,)),
        ]
        keys = Rule(_SELF + "pos_proj.weight", attention + "position_key.weight", square)
        queries = module_rule(_SELF + "pos_q_proj", attention + "position_query", *square)
    rule_of = {"c2p": keys, "p2c": queries}
    separate = config.relative_attention and not config.share_att_key
    return [*projections, *(rule_of[term] for term in config.terms if separate), *others]


def _masked(base: WeightMap, config: DebertaConfig) -> WeightMap:
    """Return the rules with the masked-LM head and the enhanced mask decoder's positions."""
    names, alternative = (_OLD, _PRESENT) if config.legacy_names else (_PRESENT, _OLD)
    weights = mlm_head_rules(base, config, names, alternative)
    if not config.decodes_positions:
        return weights
    shape = (config.max_positions, config.hidden_size)
    return weights.plus(Rule(_POSITIONS, "positions.weight", shape, optional="enhanced_decoder"))


def _replaced(target: str, config: DebertaConfig) -> list[Rule]:
    width = config.hidden_size
    source = "mask_predictions."
    return [
        module_rule(source + "LayerNorm", target + ".norm", width),
        module_rule(source + "dense", target + ".dense", width, width),
        module_rule(source + "classifier", target + ".classifier", 1, width),
    ]
