"""Weight rules of EuroBERT."""

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder_rules import gated_block_rules, module_rule
from zoo.weights.head_rules import dense_rules, output_rules
from zoo_eurobert.config import EuroBertConfig

_TOKENS = "model.embed_tokens.weight"


def weights(config: EuroBertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    labels = len(config.labels)
    backbone = WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
            *gated_block_rules(config),
            Rule("model.norm.weight", "final_norm.weight", (width,)),
        ],
        prefix="model.",
        counts={"i": config.num_layers},
    )
    match head:
        case "masked-lm":
            return output_rules(backbone, config, "lm_head.weight", _TOKENS)
        case "sequence-classification":
            return backbone.plus(*dense_rules(config, "dense", "classifier", labels))
        case "token-classification":
            return backbone.plus(module_rule("classifier", "head", labels, width))
    return backbone
