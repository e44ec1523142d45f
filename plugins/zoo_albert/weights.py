"""Weight rules of ALBERT: the Hub's names and ours."""

from collections.abc import Collection

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder_rules import BlockNames, backbone_rules, block_rules, module_rule
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head, with_pairs
from zoo.weights.releases import ReleaseTensor, tf_encoder_name
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
_NAMES = HeadNames(
    masked=MaskedNames(
        dense="predictions.dense",
        norm="predictions.LayerNorm",
        decoder="predictions.decoder",
        bias="predictions.bias",
    ),
    pooler="albert.pooler",
)
# parts of the release's names -> the Hub's, replaced in this order
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
    base = backbone_rules(
        config,
        "albert.",
        blocks=_blocks(config),
        project="encoder.embedding_hidden_mapping_in",
        always_projected=True,
    )
    if head == "pretraining":
        shape = (len(config.labels), config.hidden_size)
        order = module_rule("sop_classifier.classifier", "head.order", *shape)
        return with_pairs(base, config, _NAMES, order)
    return with_head(base, config, head, _NAMES)


def _blocks(config: AlbertConfig) -> list[Rule]:
    """Return the rules of the blocks, which the Hub numbers by group and within the group."""
    rules = []
    for number in range(config.num_groups * config.blocks_in_group):
        group, inner = divmod(number, config.blocks_in_group)
        source = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}."
        rules += block_rules(config, _BLOCK, source, f"layers.{number}.")
    return rules


def from_tensorflow(names: Collection[str], head: str) -> dict[str, ReleaseTensor]:
    """Return the Hub names of Google's release (google-research/albert, modeling.py)."""
    return {name: _released(name) for name in names}


def _released(name: str) -> ReleaseTensor:
    spelled = name
    for part, hub_part in _RELEASED.items():
        spelled = spelled.replace(part, hub_part)
    if "/albert_layers/" in spelled:  # a norm that is not the block's last follows attention
        spelled = spelled.replace("/LayerNorm/", "/attention/LayerNorm/")
    return tf_encoder_name(name, spelled)
