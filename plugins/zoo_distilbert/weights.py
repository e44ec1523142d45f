"""Weight rules of DistilBERT: the Hub's names and ours."""

from zoo.weights import WeightMap
from zoo.weights.encoder_rules import BlockNames, backbone_rules, block_rules
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_distilbert.config import DistilBertConfig

_BLOCK = BlockNames(
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    out="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    ffn_norm="output_layer_norm",
)
_NAMES = HeadNames(
    masked=MaskedNames("vocab_transform", "vocab_layer_norm", "vocab_projector", bias=""),
    text=("pre_classifier", "classifier"),
)


def weights(config: DistilBertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    blocks = block_rules(config, _BLOCK, "distilbert.transformer.layer.{i}.")
    return with_head(backbone_rules(config, "distilbert.", blocks=blocks), config, head, _NAMES)
