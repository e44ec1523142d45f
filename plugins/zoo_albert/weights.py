"""ALBERT's tensors: the Hub's names and ours."""

from dataclasses import replace

from zoo.foreign import Foreign, tensorflow_name
from zoo.weights import Rule, WeightMap
from zoo.weights.encoder import BlockNames, block_rules, masked_head, no_pooler, trunk
from zoo_albert.config import AlbertConfig

_BLOCK = BlockNames(
    query="attention.query",
    key="attention.key",
    value="attention.value",
    out="attention.dense",
    attention_norm="attention.LayerNorm",
    up="ffn",
    down="ffn_output",
    ffn_norm="full_layer_layer_norm",
)
_ENCODER = "albert.encoder."
# Google's words in a path -> the Hub's, in the order in which they are replaced
_RELEASED = {
    "/transformer/group_": "/albert_layer_groups/",
    "/inner_group_": "/albert_layers/",
    "/attention_1/self/": "/attention/",
    "/attention_1/output/": "/attention/",
    "/ffn_1/intermediate/output/dense/": "/ffn_output/",
    "/ffn_1/intermediate/dense/": "/ffn/",
    "/LayerNorm_1/": "/full_layer_layer_norm/",
    "/pooler/dense/": "/pooler/",
    "cls/predictions/transform/": "predictions/",
    "cls/predictions/": "predictions/",
    "cls/seq_relationship/": "sop_classifier/classifier/",
    "bert/": "albert/",
}


def weights(config: AlbertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, labels = config.hidden_size, len(config.labels)
    base = trunk(
        config,
        "albert.",
        blocks=_blocks(config),
        project="encoder.embedding_hidden_mapping_in",
        always_projected=True,
    )
    pooler = Rule("albert.pooler.{p}", "pooler.{p}", (width, width))
    match head:
        case "none":
            return base.plus(replace(pooler, optional="pooler")) if config.pooler else base
        case "masked-lm":
            return _masked(base, config).plus(drops=[no_pooler(pooler)])
        case "pretraining":
            order = Rule("sop_classifier.classifier.{p}", "head.order.{p}", (labels, width))
            return _masked(base, config).plus(pooler, order)
        case "sequence-classification":
            return base.plus(pooler, Rule("classifier.{p}", "head.{p}", (labels, width)))
        case "multiple-choice":
            return base.plus(pooler, Rule("classifier.{p}", "head.{p}", (1, width)))
        case "token-classification":
            head_rule = Rule("classifier.{p}", "head.{p}", (labels, width))
            return base.plus(head_rule, drops=[no_pooler(pooler)])
        case "question-answering":
            head_rule = Rule("qa_outputs.{p}", "head.{p}", (2, width))
            return base.plus(head_rule, drops=[no_pooler(pooler)])
    raise ValueError(f"ALBERT has no head {head!r}")


def _blocks(config: AlbertConfig) -> list[Rule]:
    """Return the rules of each block: groups are numbered on the Hub, and blocks in them."""
    rules = []
    for number in range(config.num_groups * config.blocks_in_group):
        group, inner = divmod(number, config.blocks_in_group)
        rules += block_rules(
            _BLOCK,
            f"{_ENCODER}albert_layer_groups.{group}.albert_layers.{inner}.",
            f"layers.{number}.",
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
        )
    return rules


def _masked(base: WeightMap, config: AlbertConfig) -> WeightMap:
    return masked_head(
        base,
        config,
        dense="predictions.dense",
        norm="predictions.LayerNorm",
        decoder="predictions.decoder",
        bias="predictions.bias",
    )


def released(name: str) -> Foreign:
    """Say what a tensor of Google's release is (google-research/albert, modeling.py)."""
    spelled = name
    for theirs, hub in _RELEASED.items():
        spelled = spelled.replace(theirs, hub)
    if "/albert_layers/" in spelled:  # a norm that is not the block's last follows attention
        spelled = spelled.replace("/LayerNorm/", "/attention/LayerNorm/")
    return tensorflow_name(name, spelled)
