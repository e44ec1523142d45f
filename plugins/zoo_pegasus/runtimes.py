"""PEGASUS in the formats of other runtimes."""

from functools import partial

from zoo.families.runtimes import RuntimeModel
from zoo.families.seq2seq_runtimes import seq2seq_ctranslate2
from zoo.weights import sinusoidal_positions
from zoo_pegasus.config import PegasusConfig
from zoo_pegasus.weights import weights


def ctranslate2(config: PegasusConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    return seq2seq_ctranslate2(
        config,
        head,
        weights(config, head),
        pre_norm=True,
        positions=partial(sinusoidal_positions, config.max_positions, config.hidden_size),
    )
