"""BART and mBART in the formats of other runtimes."""

from zoo.families.runtimes import RuntimeModel
from zoo.families.seq2seq_runtimes import seq2seq_ctranslate2
from zoo_bart.config import POSITION_OFFSET, BartConfig
from zoo_bart.weights import weights


def ctranslate2(config: BartConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    is_mbart = config.model_type == "mbart"
    return seq2seq_ctranslate2(
        config,
        head,
        weights(config, head),
        pre_norm=is_mbart,
        skipped_positions=POSITION_OFFSET,
        decoder_start=not is_mbart,  # of mBART it is a language
    )
