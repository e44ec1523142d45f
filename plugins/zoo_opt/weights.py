"""Weight rules of OPT and XGLM: names of the Hub's checkpoints and names of the zoo's modules."""

from zoo.weights import Ignore, Rule, WeightMap
from zoo.weights.encoder_rules import FAIRSEQ_NAMES, block_rules, module_rule
from zoo.weights.head_rules import causal_head_rules
from zoo_opt.config import POSITION_OFFSET, OptConfig

_PREFIX = "model."


def weights(config: OptConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    is_opt = config.model_type == "opt"
    stack = f"{_PREFIX}decoder." if is_opt else _PREFIX
    tokens = f"{stack}embed_tokens.weight"
    width = config.hidden_size
    rules = [Rule(tokens, "embeddings.tokens.weight", (config.vocab_size, width))]
    drops = []
    if is_opt:
        table = (config.max_positions + POSITION_OFFSET, width)
        rules.append(Rule(f"{stack}embed_positions.weight", "embeddings.positions.weight", table))
    else:
        drops.append(Ignore(f"{stack}embed_positions.weights", "sinusoidal positions are computed"))
    final_norm = "final_layer_norm" if is_opt else "layer_norm"
    backbone = WeightMap(
        rules=[
            *rules,
            *block_rules(config, FAIRSEQ_NAMES, stack + "layers.{i}."),
            module_rule(stack + final_norm, "final_norm", width),
        ],
        drops=drops,
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )
    return causal_head_rules(backbone, config, head, tokens, tied=config.tie_embeddings)
