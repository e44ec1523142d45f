"""Weight rules of Marian: names of the Hub's checkpoints and names of the zoo's modules."""

from zoo.weights import WeightMap
from zoo.weights.seq2seq_rules import (
    PREFIX,
    language_model_rules,
    position_constants,
    seq2seq_rules,
)
from zoo_marian.config import MarianConfig


def weights(config: MarianConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    shares_tokens = config.share_encoder_decoder_embeddings
    backbone = seq2seq_rules(
        config,
        positions=position_constants(config),
        embedding_norm=False,
        shared_table=shares_tokens,
    )
    if head == "none":
        return backbone
    owner = "shared" if shares_tokens else "decoder.embed_tokens"
    return language_model_rules(backbone, config, tokens=f"{PREFIX}{owner}.weight")
