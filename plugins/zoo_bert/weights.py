"""BERT's tensors: the Hub's names and ours."""

from dataclasses import replace

from zoo.weights import Drop, Rule, WeightMap
from zoo.weights.encoder import masked_head, no_pooler, trunk
from zoo_bert.config import BertConfig

# TinyBERT (arXiv:1909.10351, equation 9) ships them
_FITTED = Drop(
    "fit_denses.{j}.{p}", "maps a student's vectors to its teacher's width, in distillation alone"
)


def weights(config: BertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, labels = config.hidden_size, len(config.labels)
    base = trunk(config, "bert.", counts={"i": config.num_layers, "j": config.num_layers + 1})
    base = base.plus(drops=[_FITTED])
    pooler = Rule("bert.pooler.dense.{p}", "pooler.{p}", (width, width))
    match head:
        case "none":
            return base.plus(replace(pooler, optional="pooler")) if config.pooler else base
        case "masked-lm":
            return _masked(base, config).plus(drops=[no_pooler(pooler)])
        case "pretraining":
            follows = Rule("cls.seq_relationship.{p}", "head.next_sentence.{p}", (2, width))
            return _masked(base, config).plus(pooler, follows)
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
    raise ValueError(f"BERT has no head {head!r}")


def _masked(base: WeightMap, config: BertConfig) -> WeightMap:
    return masked_head(
        base,
        config,
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        decoder="cls.predictions.decoder",
        bias="cls.predictions.bias",
    )
