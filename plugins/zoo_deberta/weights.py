"""DeBERTa's tensors: the Hub's names and ours."""

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
_NO_DECODER = Ignore(_POSITIONS, "absolute positions, which only masked-token heads decode with")
# version 3 was trained with the generator's tables and what is added to them; some of its files
# hold the latter beside the sum (microsoft/DeBERTa, replaced_token_detection_model.py)
_ADDED = [
    Ignore(
        f"deberta.embeddings.{table}_embeddings._weight", "what training added; the sum is there"
    )
    for table in ("word", "position")
]
# files call the masked-token head one of two names, and its decoder always the older one
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
        found = _masked(base, config)
        return found if head == "masked-lm" else found.plus(*_replaced("replaced", config))
    if not config.position_biased_input:
        base = base.plus(drops=[_NO_DECODER])
    if head == "replaced-token-detection":
        return base.plus(*_replaced("head", config))
    return with_head(base, config, head, HeadNames(_PRESENT, pooler="pooler.dense"))


def _relative(config: DebertaConfig) -> list[Rule]:
    """Return the rules for what all blocks share: relative positions and the convolution."""
    width, encoder, rules = config.hidden_size, "deberta.encoder.", []
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
    """Return the rules for the blocks, whose projections version 1 stores in another way."""
    width, ours = config.hidden_size, "layers.{i}.attention."
    square = (width, width)
    joined, *others = block_rules(config, _BLOCK, _LAYER)
    if config.key_bias:
        projections = [joined]
        keys = module_rule(_SELF + "pos_key_proj", ours + "position_key", *square)
        queries = module_rule(_SELF + "pos_query_proj", ours + "position_query", *square)
    else:
        by_head = DeinterleaveQKV(config.num_heads)
        projections = [
            Rule(_SELF + "in_proj.weight", ours + "qkv.weight", (3 * width, width), by_head),
            Rule(_SELF + "q_bias", ours + "qkv.query_bias", (width,)),
            Rule(_SELF + "v_bias", ours + "qkv.value_bias", (width,)),
        ]
        keys = Rule(_SELF + "pos_proj.weight", ours + "position_key.weight", square)
        queries = module_rule(_SELF + "pos_q_proj", ours + "position_query", *square)
    of = {"c2p": keys, "p2c": queries}
    apart = config.relative_attention and not config.share_att_key
    return [*projections, *(of[term] for term in config.terms if apart), *others]


def _masked(base: WeightMap, config: DebertaConfig) -> WeightMap:
    """Add the masked-token head, and its decoder's table."""
    names, other = (_OLD, _PRESENT) if config.legacy_names else (_PRESENT, _OLD)
    found = mlm_head_rules(base, config, names, other)
    if not config.decodes_positions:
        return found
    shape = (config.max_positions, config.hidden_size)
    return found.plus(Rule(_POSITIONS, "positions.weight", shape, optional="enhanced_decoder"))


def _replaced(ours: str, config: DebertaConfig) -> list[Rule]:
    width, theirs = config.hidden_size, "mask_predictions."
    return [
        module_rule(theirs + "LayerNorm", ours + ".norm", width),
        module_rule(theirs + "dense", ours + ".dense", width, width),
        module_rule(theirs + "classifier", ours + ".classifier", 1, width),
    ]
