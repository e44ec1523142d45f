"""Weight rules of Ettin's decoders."""

from zoo.weights import Concat, Rule, WeightMap
from zoo.weights.encoder_rules import alternating_rules
from zoo.weights.head_rules import output_rules
from zoo_ettin.config import EttinConfig

_TOKENS = "model.embeddings.tok_embeddings.weight"


def weights(config: EttinConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = _backbone(config)
    width = config.hidden_size
    match head:
        case "causal-lm":
            return _language_model(backbone, config)
        case "sequence-classification":
            return backbone.plus(
                *_dense("head", width),
                Rule("classifier.weight", "head.out.weight", (len(config.labels), width)),
            )
    return backbone


def _backbone(config: EttinConfig) -> WeightMap:
    width = config.hidden_size
    qkv = Rule(
        tuple(f"model.layers.{{i}}.attn.{name}_proj.weight" for name in "qkv"),
        "layers.{i}.attention.qkv.weight",
        (3 * width, width),
        Concat(3),
    )
    rules = alternating_rules(config, qkv)
    return WeightMap(rules=rules, prefix="model.", counts={"i": config.num_layers})


def _language_model(backbone: WeightMap, config: EttinConfig) -> WeightMap:
    rules = backbone.plus(
        *_dense("lm_head", config.hidden_size),
        Rule("decoder.bias", "head.bias", (config.vocab_size,)),
    )
    return output_rules(rules, config, "decoder.weight", _TOKENS)


def _dense(name: str, width: int) -> list[Rule]:
    """Return the rules of the linear map of a head, and of its norm."""
    return [
        Rule(f"{name}.dense.weight", "head.dense.weight", (width, width)),
        Rule(f"{name}.norm.weight", "head.norm.weight", (width,)),
    ]
