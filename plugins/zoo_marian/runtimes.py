"""Marian's models in the formats of other runtimes."""

from zoo.families.runtimes import RuntimeModel
from zoo.families.seq2seq_runtimes import seq2seq_ctranslate2
from zoo.weights.seq2seq_rules import sinusoid_table
from zoo_marian.config import MarianConfig
from zoo_marian.weights import weights


def ctranslate2(config: MarianConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if not config.share_encoder_decoder_embeddings:
        return "its two vocabularies are not written"
    return seq2seq_ctranslate2(
        config,
        head,
        weights(config, head),
        pre_norm=False,
        positions=sinusoid_table(config),
    )
