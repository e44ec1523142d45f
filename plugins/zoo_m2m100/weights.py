"""Weight rules of M2M100: names of the Hub's checkpoints and names of the zoo's modules."""

from zoo.weights import Ignore, WeightMap
from zoo.weights.seq2seq_rules import PREFIX, language_model_rules, seq2seq_rules
from zoo_m2m100.config import M2M100Config

# Files hold no positions, except for those of early versions of the Hub's library, which did not
# read them either.
POSITIONS = [
    Ignore(f"{PREFIX}{stack}.embed_positions.weights", "sinusoidal positions are computed")
    for stack in ("encoder", "decoder")
]


def weights(config: M2M100Config, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = seq2seq_rules(config, positions=(), embedding_norm=False, final_norm=True)
    backbone = backbone.plus(drops=POSITIONS)
    if head == "none":
        return backbone
    return language_model_rules(backbone, config, bias="")
