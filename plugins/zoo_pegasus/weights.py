"""Names and shapes of the tensors of PEGASUS, in published checkpoints and in the model."""

from functools import partial

from zoo.weights import WeightMap, sinusoidal_positions
from zoo.weights.head_rules import lm_head_rules
from zoo.weights.seq2seq_rules import PREFIX, position_constants, seq2seq_rules
from zoo_pegasus.config import PegasusConfig


def weights(config: PegasusConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    table = partial(sinusoidal_positions, config.max_positions, config.hidden_size)
    backbone = seq2seq_rules(
        config,
        positions=position_constants(config, table),
        embedding_norm=False,
        final_norm=True,
    )
    if head == "none":
        return backbone
    tied = config.tie_embeddings
    tokens = f"{PREFIX}shared.weight"
    return lm_head_rules(backbone, config, tokens, tied=tied, bias="final_logits_bias")
