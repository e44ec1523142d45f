"""OPT and XGLM in the formats of other runtimes."""

from typing import TYPE_CHECKING, Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS, ct2_block, ct2_norm
from zoo.families.runtimes import RuntimeModel, SkipRows, runtime_weights
from zoo_opt.config import POSITION_OFFSET, OptConfig
from zoo_opt.weights import weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TABLE = "decoder/position_encodings/encodings"


def ctranslate2(config: OptConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return "its generator returns the logits of a language model"
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"

    def positions() -> "NDArray[np.float32]":
        from zoo_opt.model import position_table

        return position_table(config)[POSITION_OFFSET:]

    tokens = "embeddings.tokens.weight"
    names: dict[Any, Any] = {
        "decoder/embeddings/weight": tokens,
        **ct2_norm("decoder/layer_norm", "final_norm"),
        **ct2_block("decoder/layer_{i}/"),
    }
    constants = {}
    if config.model_type == "xglm":
        constants[_TABLE] = positions
    else:
        names[_TABLE] = ("embeddings.positions.weight", SkipRows(POSITION_OFFSET))
    copies = {}
    if config.tie_embeddings:
        copies["decoder/projection/weight"] = tokens
    else:
        names["decoder/projection/weight"] = "head.weight"
    settings = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": True,
        "activation": CT2_ACTIVATIONS[config.activation],
        "scale_embeddings": config.hidden_size**0.5 if config.scale_embedding else 1.0,
        "layer_norm_epsilon": config.layer_norm_eps,
    }
    return RuntimeModel(
        "decoder",
        settings,
        runtime_weights(names, weights(config, head), {"i": config.num_layers}),
        copies=copies,
        constants=constants,
    )
