"""T5 and mT5 in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS
from zoo.families.runtimes import RuntimeModel, layered, runtime_weights
from zoo.families.seq2seq_runtimes import CT2_LOGITS_ONLY, OURS, ct2_cross_attention
from zoo.weights import Concat
from zoo_t5.config import T5Config
from zoo_t5.weights import weights

_TOKENS = "embeddings.tokens.weight"


def ctranslate2(config: T5Config, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head not in ("seq2seq-lm", "encoder"):
        return CT2_LOGITS_ONLY
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    model = weights(config, head)
    settings = {
        "pre_norm": True,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.layer_norm_eps,
        "rms_norm": True,
        "ffn_glu": config.gated,
        "relative_attention_bias": True,
        "relative_attention_max_distance": config.max_distance,
        "queries_scale": 1.0,  # scores are not divided
    }
    names: dict[Any, Any] = {
        "encoder/embeddings_0/weight": _TOKENS,
        **_stack(config, "encoder", "{i}"),
    }
    copies = _copies("encoder", config.num_layers)
    if head == "encoder":
        settings |= {"num_layers": config.num_layers, "num_heads": config.num_heads}
        counts = {"i": config.num_layers}
        return RuntimeModel("encoder", settings, runtime_weights(names, model, counts), copies)
    names |= _stack(config, "decoder", "{j}")
    names |= ct2_cross_attention("decoder/layer_{j}/", "weight")
    names["decoder/layer_{j}/attention/layer_norm/gamma"] = "decoder.layers.{j}.cross_norm.weight"
    copies |= _copies("decoder", config.decoder_layers)
    copies["decoder/embeddings/weight"] = _TOKENS
    if config.output_table:
        names["decoder/projection/weight"] = "head.weight"
    else:
        copies["decoder/projection/weight"] = _TOKENS
    settings |= {
        "num_layers": (config.num_layers, config.decoder_layers),
        "num_heads": (config.num_heads, config.num_heads),
        "scale_outputs": config.hidden_size**-0.5 if config.scale_outputs else None,
    }
    counts = {"i": config.num_layers, "j": config.decoder_layers}
    return RuntimeModel("encoder-decoder", settings, runtime_weights(names, model, counts), copies)


def _stack(config: T5Config, stack: str, number: str) -> dict[Any, Any]:
    """Return the names of the blocks of a stack, without cross-attention."""
    up: dict[Any, Any] = {"ffn/linear_0/weight": "ffn.up.weight"}
    if config.gated:
        both = "ffn/linear_0/weight", "ffn/linear_0_noact/weight"
        up = {both: ("ffn.up.weight", Concat(2))}
    ours = OURS[stack]
    return {
        **layered(
            f"{stack}/layer_{number}/",
            {
                "self_attention/linear_0/weight": "attention.qkv.weight",
                "self_attention/linear_1/weight": "attention.out.weight",
                "self_attention/layer_norm/gamma": "attention_norm.weight",
                **up,
                "ffn/linear_1/weight": "ffn.down.weight",
                "ffn/layer_norm/gamma": "ffn_norm.weight",
            },
            f"{ours}layers.{number}.",
        ),
        f"{_bias(stack, 0)}": f"{ours}positions.weight",
        f"{stack}/layer_norm/gamma": f"{ours}final_norm.weight",
    }


def _copies(stack: str, layers: int) -> dict[str, str]:
    """Return the tables of position biases after the first block, which shares its table."""
    table = f"{OURS[stack]}positions.weight"
    return {_bias(stack, number): table for number in range(1, layers)}


def _bias(stack: str, number: int) -> str:
    return f"{stack}/layer_{number}/self_attention/relative_attention_bias"
