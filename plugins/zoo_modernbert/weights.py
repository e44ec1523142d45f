"""Weight rules of ModernBERT."""

from zoo.weights import Rule, TiedAlias, WeightMap
from zoo_modernbert.composer import old_names
from zoo_modernbert.config import ModernBertConfig

_LAYER = "model.layers.{i}."
_OURS = "layers.{i}."
_TOKENS = "model.embeddings.tok_embeddings.weight"


def weights(config: ModernBertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    inner = config.intermediate_size
    # the first block has no norm before its attention
    norms = [
        Rule(f"model.layers.{i}.attn_norm.weight", f"layers.{i}.attention_norm.weight", (width,))
        for i in range(1, config.num_layers)
    ]
    backbone = WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule("model.embeddings.norm.weight", "embeddings.norm.weight", (width,)),
            _in_layer("attn.Wqkv", "attention.qkv", 3 * width, width),
            _in_layer("attn.Wo", "attention.out", width, width),
            _in_layer("mlp_norm", "ffn_norm", width),
            _in_layer("mlp.Wi", "ffn.up", 2 * inner, width),
            _in_layer("mlp.Wo", "ffn.down", width, inner),
            Rule("model.final_norm.weight", "final_norm.weight", (width,)),
            *norms,
        ],
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
    if config.tie_embeddings:
        return rules.plus(bias, ties=[TiedAlias("decoder.weight", to=_TOKENS)])
    shape = config.vocab_size, config.hidden_size
    return rules.plus(bias, Rule("decoder.weight", "head.decoder.weight", shape))


def _in_layer(source: str, target: str, *shape: int) -> Rule:
    return Rule(f"{_LAYER}{source}.weight", f"{_OURS}{target}.weight", shape)
