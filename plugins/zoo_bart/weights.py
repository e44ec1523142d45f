"""Weight rules of BART: names of the Hub's checkpoints and names of the zoo's modules."""

from zoo.weights import WeightMap
from zoo.weights.head_rules import HeadNames, dense_rules, with_head
from zoo.weights.seq2seq_rules import language_model_rules, seq2seq_rules
from zoo_bart.config import POSITION_OFFSET, BartConfig

_TEXT_HEAD = ("classification_head.dense", "classification_head.out_proj")


def weights(config: BartConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    final_norm = config.model_type == "mbart"
    backbone = seq2seq_rules(config, position_offset=POSITION_OFFSET, final_norm=final_norm)
    if head == "seq2seq-lm":
        return language_model_rules(backbone, config)
    if head == "sequence-classification":
        return backbone.plus(*dense_rules(config, *_TEXT_HEAD, len(config.labels)))
    return with_head(backbone, config, head, HeadNames())
