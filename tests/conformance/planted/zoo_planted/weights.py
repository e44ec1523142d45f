"""Weight rules of XLM."""

from zoo.weights import Concat, Rule, TiedAlias, WeightMap
from zoo_planted.config import XLMConfig

_P = "transformer."
_TOKENS = _P + "embeddings.weight"
_QKV = tuple(f"{_P}attentions.{{i}}.{part}_lin.{{p}}" for part in "qkv")


def weights(config: XLMConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, vocabulary, inner = config.hidden_size, config.vocab_size, config.intermediate_size
    backbone = WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (vocabulary, width)),
            Rule(
                _P + "position_embeddings.weight",
                "embeddings.positions.weight",
                (config.max_positions, width),
            ),
            Rule(_P + "layer_norm_emb.{p}", "embeddings.norm.{p}", (width,)),
            Rule(_QKV, "layers.{i}.attention.qkv.{p}", (3 * width, width), Concat(3)),
            _in_layer("attentions.{i}.out_lin", "attention.out", (width, width)),
            _in_layer("layer_norm1.{i}", "attention_norm", (width,)),
            _in_layer("ffns.{i}.lin1", "ffn.up", (inner, width)),
            _in_layer("ffns.{i}.lin2", "ffn.down", (width, inner)),
            _in_layer("layer_norm2.{i}", "ffn_norm", (width,)),
        ],
        prefix=_P,
        counts={"i": config.num_layers},
    )
    if head == "masked-lm":
        output = backbone.plus(Rule("pred_layer.proj.bias", "head.bias", (vocabulary,)))
        if config.tie_embeddings:
            return output.plus(ties=[TiedAlias("pred_layer.proj.weight", to=_TOKENS)])
        return output.plus(
            Rule("pred_layer.proj.weight", "head.decoder.weight", (vocabulary, width))
        )
    labels = len(config.labels)
    if head == "sequence-classification":
        return backbone.plus(Rule("sequence_summary.summary.{p}", "head.{p}", (labels, width)))
    if head == "token-classification":
        return backbone.plus(Rule("classifier.{p}", "head.{p}", (labels, width)))
    return backbone


def _in_layer(source: str, target: str, shape: tuple[int, ...]) -> Rule:
    return Rule(f"{_P}{source}.{{p}}", f"layers.{{i}}.{target}.{{p}}", shape)
