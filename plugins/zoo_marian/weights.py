"""Weight rules of Marian: names of the Hub's checkpoints and names of the zoo's modules."""

from functools import partial

from zoo.weights import WeightMap, sinusoidal_positions
from zoo.weights.head_rules import lm_head_rules
from zoo.weights.seq2seq_rules import PREFIX, position_constants, seq2seq_rules
from zoo_marian.config import MarianConfig


def weights(config: MarianConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    shares_tokens = config.share_encoder_decoder_embeddings
    table = partial(sinusoidal_positions, config.max_positions, config.hidden_size)
    backbone = seq2seq_rules(
        config,
        positions=position_constants(config, table),
        embedding_norm=False,
        shared_table=shares_tokens,
    )
    if head == "none":
        return backbone
    owner = "shared" if shares_tokens else "decoder.embed_tokens"
    return lm_head_rules(
        backbone,
        config,
        f"{PREFIX}{owner}.weight",
        tied=config.tie_embeddings,
        bias="final_logits_bias",
    )
