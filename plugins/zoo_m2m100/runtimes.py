"""M2M100 and NLLB in the formats of other runtimes."""

from typing import TYPE_CHECKING

from zoo.families.runtimes import RuntimeModel
from zoo.families.seq2seq_runtimes import seq2seq_ctranslate2
from zoo_m2m100.config import M2M100Config
from zoo_m2m100.weights import weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def ctranslate2(config: M2M100Config, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""

    def positions() -> "NDArray[np.float32]":
        from zoo_m2m100.model import position_table

        return position_table(config)[config.position_offset :]

    return seq2seq_ctranslate2(
        config, head, weights(config, head), pre_norm=True, positions=positions
    )
