"""DistilBERT's tensors: the Hub's names and ours."""

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder import BlockNames, block_rules, masked_head, trunk
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


def weights(config: DistilBertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, labels = config.hidden_size, len(config.labels)
    blocks = block_rules(
        _BLOCK,
        "distilbert.transformer.layer.{i}.",
        "layers.{i}.",
        hidden_size=width,
        intermediate_size=config.intermediate_size,
    )
    base = trunk(config, "distilbert.", blocks=blocks)
    dense = Rule("pre_classifier.{p}", "head.dense.{p}", (width, width))
    match head:
        case "none":
            return base
        case "masked-lm":
            return masked_head(
                base,
                config,
                dense="vocab_transform",
                norm="vocab_layer_norm",
                decoder="vocab_projector",
            )
        case "sequence-classification":
            return base.plus(dense, Rule("classifier.{p}", "head.out.{p}", (labels, width)))
        case "multiple-choice":
            return base.plus(dense, Rule("classifier.{p}", "head.out.{p}", (1, width)))
        case "token-classification":
            return base.plus(Rule("classifier.{p}", "head.{p}", (labels, width)))
        case "question-answering":
            return base.plus(Rule("qa_outputs.{p}", "head.{p}", (2, width)))
    raise ValueError(f"DistilBERT has no head {head!r}")
