"""Names and shapes of the tensors of PEGASUS, in published checkpoints and in the model."""

from zoo.weights import WeightMap
from zoo.weights.seq2seq_rules import language_model_rules, position_constants, seq2seq_rules
from zoo_pegasus.config import PegasusConfig


def weights(config: PegasusConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = seq2seq_rules(
        config,
        positions=position_constants(config),
        embedding_norm=False,
        final_norm=True,
    )
    if head == "none":
        return backbone
    return language_model_rules(backbone, config)
