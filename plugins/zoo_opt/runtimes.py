"""OPT and XGLM in the formats of other runtimes."""

from typing import TYPE_CHECKING, Any

from zoo.families.decoder_runtimes import ct2_problem, decoder_ctranslate2
from zoo.families.post_norm_runtimes import ct2_block, ct2_norm
from zoo.families.runtimes import RuntimeModel, SkipRows
from zoo_opt.config import POSITION_OFFSET, OptConfig
from zoo_opt.weights import weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TABLE = "decoder/position_encodings/encodings"


def ctranslate2(config: OptConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if problem := ct2_problem(config, head):
        return problem

    def positions() -> "NDArray[np.float32]":
        from zoo_opt.model import position_table

        return position_table(config)[POSITION_OFFSET:]

    names: dict[Any, Any] = {
        **ct2_norm("decoder/layer_norm", "final_norm"),
        **ct2_block("decoder/layer_{i}/"),
    }
    constants = {}
    if config.model_type == "xglm":
        constants[_TABLE] = positions
    else:
        names[_TABLE] = ("embeddings.positions.weight", SkipRows(POSITION_OFFSET))
    scale = config.hidden_size**0.5 if config.scale_embedding else 1.0
    return decoder_ctranslate2(
        config, weights(config, head), names, {"scale_embeddings": scale}, constants=constants
    )
