"""Weight rules of ModernBERT."""

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder_rules import alternating_rules, weight_rule
from zoo.weights.head_rules import output_rules
from zoo_modernbert.composer import old_names
from zoo_modernbert.config import ModernBertConfig

_TOKENS = "model.embeddings.tok_embeddings.weight"


def weights(config: ModernBertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    qkv = weight_rule("model.layers.{i}.attn.Wqkv", "layers.{i}.attention.qkv", 3 * width, width)
    backbone = WeightMap(
        rules=alternating_rules(config, qkv),
        legacy=old_names(config.num_layers),
        prefix="model.",
        counts={"i": config.num_layers},
    )
    if head == "none":
        return backbone
    with_dense = backbone.plus(
        Rule("head.dense.weight", "head.dense.weight", (width, width)),
        Rule("head.norm.weight", "head.norm.weight", (width,)),
    )
    if head == "masked-lm":
        return _masked(with_dense, config)
    spans = {"multiple-choice": 1, "question-answering": 2}
    outputs = spans.get(head, len(config.labels))
    return with_dense.plus(Rule("classifier.{p}", "head.out.{p}", (outputs, width)))


def _masked(rules: WeightMap, config: ModernBertConfig) -> WeightMap:
    bias = Rule("decoder.bias", "head.bias", (config.vocab_size,))
    return output_rules(rules.plus(bias), config, "decoder.weight", _TOKENS)
