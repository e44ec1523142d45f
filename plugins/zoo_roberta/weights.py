"""RoBERTa's tensors: the Hub's names and ours."""

from dataclasses import replace

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder import masked_head, no_pooler, trunk
from zoo_roberta.config import RobertaConfig


def weights(config: RobertaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, labels = config.hidden_size, len(config.labels)
    base = trunk(config, "roberta.")
    pooler = Rule("roberta.pooler.dense.{p}", "pooler.{p}", (width, width))
    match head:
        case "none":
            return base.plus(replace(pooler, optional="pooler")) if config.pooler else base
        case "multiple-choice":
            return base.plus(pooler, Rule("classifier.{p}", "head.{p}", (1, width)))
    base = base.plus(drops=[no_pooler(pooler)])
    match head:
        case "masked-lm":
            return masked_head(
                base,
                config,
                dense="lm_head.dense",
                norm="lm_head.layer_norm",
                decoder="lm_head.decoder",
                bias="lm_head.bias",
            )
        case "sequence-classification":
            return base.plus(
                Rule("classifier.dense.{p}", "head.dense.{p}", (width, width)),
                Rule("classifier.out_proj.{p}", "head.out.{p}", (labels, width)),
            )
        case "token-classification":
            return base.plus(Rule("classifier.{p}", "head.{p}", (labels, width)))
        case "question-answering":
            return base.plus(Rule("qa_outputs.{p}", "head.{p}", (2, width)))
    raise ValueError(f"RoBERTa has no head {head!r}")
