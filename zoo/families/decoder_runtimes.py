"""Names of decoders with pre-norm blocks in the formats of other runtimes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS
from zoo.families.runtimes import Names, RuntimeModel, gguf_sizes, layered, runtime_weights
from zoo.weights import WeightMap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CT2_LOGITS_ONLY = "its generator returns the logits of a language model"
GGUF_LOGITS_ONLY = "it returns the logits of a language model"
_TOKENS = "embeddings.tokens.weight"
# Blocks with one map to queries, keys and values, without a gate, and the norm after the last one.
GGUF_BLOCKS: Names = {
    **layered(
        "blk.{i}.",
        {
            "attn_norm.{p}": "attention_norm.{p}",
            "attn_qkv.{p}": "attention.qkv.{p}",
            "attn_output.{p}": "attention.out.{p}",
            "ffn_norm.{p}": "ffn_norm.{p}",
            "ffn_up.{p}": "ffn.up.{p}",
            "ffn_down.{p}": "ffn.down.{p}",
        },
    ),
    "output_norm.{p}": "final_norm.{p}",
}


def ct2_problem(config: Any, head: str) -> str | None:
    """Return why CTranslate2 cannot hold a head or an activation function, or ``None``."""
    if head != "causal-lm":
        return CT2_LOGITS_ONLY
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    return None


def decoder_ctranslate2(
    config: Any,
    model: WeightMap,
    names: Names,
    settings: Mapping[str, Any] = MappingProxyType({}),
    *,
    constants: "Mapping[str, Callable[[], NDArray[np.float32]]]" = MappingProxyType({}),
) -> RuntimeModel:
    """Return a decoder as CTranslate2 describes it.

    Args:
        config: the configuration.
        model: the family's rules.
        names: names of the tensors except input and output embeddings.
        settings: further settings, or others in place of the common ones.
        constants: see ``RuntimeModel``.
    """
    all_names: dict[Any, Any] = {"decoder/embeddings/weight": _TOKENS, **names}
    copies = {}
    if getattr(config, "tie_embeddings", True):
        copies["decoder/projection/weight"] = _TOKENS
    else:
        all_names["decoder/projection/weight"] = "head.weight"
    common = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": True,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.layer_norm_eps,
    }
    return RuntimeModel(
        "decoder",
        {**common, **settings},
        runtime_weights(all_names, model, {"i": config.num_layers}),
        copies=copies,
        constants=constants,
    )


def decoder_gguf(
    config: Any,
    model: WeightMap,
    architecture: str,
    names: Names,
    settings: Mapping[str, Any],
    *,
    tokenizer: Mapping[str, str] = MappingProxyType({}),
) -> RuntimeModel:
    """Return a decoder as llama.cpp describes it.

    Args:
        config: the configuration.
        model: the family's rules.
        architecture: name of the architecture in the format.
        names: names of the tensors except input and output embeddings.
        settings: further settings, or others in place of ``gguf_sizes``.
        tokenizer: see ``RuntimeModel``.
    """
    all_names: dict[Any, Any] = {"token_embd.weight": _TOKENS, **names}
    if not getattr(config, "tie_embeddings", True):
        all_names["output.weight"] = "head.weight"
    return RuntimeModel(
        architecture,
        {**gguf_sizes(config), **settings},
        runtime_weights(all_names, model, {"i": config.num_layers}),
        tokenizer=tokenizer,
    )
