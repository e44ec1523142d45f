"""PEGASUS in the formats of other runtimes."""

from zoo.families.runtimes import RuntimeModel
from zoo.families.seq2seq_runtimes import seq2seq_ctranslate2
from zoo.weights.seq2seq_rules import sinusoid_table
from zoo_pegasus.config import PegasusConfig
from zoo_pegasus.weights import weights


def ctranslate2(config: PegasusConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    return seq2seq_ctranslate2(
        config,
        head,
        weights(config, head),
        pre_norm=True,
        positions=sinusoid_table(config),
    )
