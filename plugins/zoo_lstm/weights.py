"""The tensors of LSTM language models: torch's names, as its example of word models has them.

``word_language_model`` of pytorch/examples has the modules ``encoder`` (the token embeddings),
``rnn`` (an ``nn.LSTM``) and ``decoder`` (the output embeddings and their bias).
"""

from zoo.weights import Rule, TiedAlias, WeightMap
from zoo.weights.encoder_rules import module_rule
from zoo_lstm.config import LstmConfig

TOKENS = "encoder.weight"
OUTPUT = "decoder.weight"
OUTPUT_BIAS = "decoder.bias"
RECURRENT = "rnn.weight_hh_l0"
GATES = 4


def weights(config: LstmConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    table = (config.vocab_size, config.embedding_size)
    backbone = WeightMap(rules=[Rule(TOKENS, "embeddings.tokens.weight", table), *_layers(config)])
    match head:
        case "none":
            return backbone
        case "causal-lm":
            return _language_model(backbone, config)
        case "sequence-classification":
            # No published file has such a head.
            classifier = module_rule("classifier", "head", len(config.labels), config.hidden_size)
            return backbone.plus(classifier)
    raise ValueError(f"an LSTM has no head {head!r}")


def _layers(config: LstmConfig) -> list[Rule]:
    gates = GATES * config.hidden_size
    rules = []
    for number in range(config.num_layers):
        inputs = config.hidden_size if number else config.embedding_size
        shapes = {
            "weight_ih": (gates, inputs),
            "weight_hh": (gates, config.hidden_size),
            "bias_ih": (gates,),
            "bias_hh": (gates,),
        }
        for name, shape in shapes.items():
            target = f"layers.{number}.lstm.{name}_l0"
            rules.append(Rule(f"rnn.{name}_l{number}", target, shape))
    return rules


def _language_model(backbone: WeightMap, config: LstmConfig) -> WeightMap:
    bias = Rule(OUTPUT_BIAS, "head.bias", (config.vocab_size,), optional="logits_bias")
    rules = backbone.plus(bias)
    if config.tie_embeddings:
        return rules.plus(ties=[TiedAlias(OUTPUT, to=TOKENS)])
    table = (config.vocab_size, config.hidden_size)
    return rules.plus(Rule(OUTPUT, "head.decoder.weight", table))
