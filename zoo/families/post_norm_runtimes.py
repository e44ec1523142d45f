"""Names of encoders with post-norm blocks in the formats of other runtimes.

An architecture that several families share: embeddings, a norm, and blocks whose norms
follow the residual sums.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from zoo.families.runtimes import (
    QKV,
    Names,
    RuntimeHeader,
    RuntimeModel,
    SkipRows,
    gguf_sizes,
    layered,
    runtime_weights,
)
from zoo.weights import WeightMap

# activation functions of CTranslate2 by their names in ``ctranslate2.specs.Activation``
CT2_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_python": "GELU",
    "gelu_new": "GELUTanh",
    "gelu_accurate": "GELUTanh",
    "gelu_fast": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh",
    "gelu_python_tanh": "GELUTanh",
    "silu": "SWISH",
    "swish": "SWISH",
}
CT2_NORM = {"gamma": "weight", "beta": "bias"}
GGUF_GELU = ("gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh")
NO_HEAD = "its encoder returns hidden states, and has no layers for this head"


def ct2_norm(theirs: str, ours: str) -> Names:
    """Return the names of a norm in CTranslate2."""
    return {f"{theirs}/{name}": f"{ours}.{part}" for name, part in CT2_NORM.items()}


def ct2_block(prefix: str, ours: str = "layers.{i}.") -> Names:
    """Return the names of a block without cross-attention in CTranslate2."""
    return layered(
        prefix,
        {
            "self_attention/linear_0/{p}": "attention.qkv.{p}",
            "self_attention/linear_1/{p}": "attention.out.{p}",
            **ct2_norm("self_attention/layer_norm", "attention_norm"),
            "ffn/linear_0/{p}": "ffn.up.{p}",
            "ffn/linear_1/{p}": "ffn.down.{p}",
            **ct2_norm("ffn/layer_norm", "ffn_norm"),
        },
        ours,
    )


def unsupported(config: Any, head: str, model: WeightMap) -> str | None:
    """Return why neither CTranslate2 nor GGUF supports a model; ``None`` if they may."""
    targets = {entry.target for entry in model.entries()}
    if "embeddings.project.weight" in targets:
        return "it has no projection from narrower embeddings to the width of the blocks"
    if "final_norm.weight" in targets:
        return "its encoder has norms after attention and feed-forward networks, not before them"
    if getattr(config, "mix", False):
        return f"the head {head} reads a mix of all layers"
    return None


def encoder_ctranslate2(
    config: Any, head: str, model: WeightMap, *, skipped_positions: int = 0
) -> RuntimeModel | str:
    """Return an encoder as CTranslate2 describes it, or why it cannot."""
    if head != "none":
        return NO_HEAD
    reason = unsupported(config, head, model)
    if reason is not None:
        return reason
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    targets = {entry.target for entry in model.entries()}
    has_pooler = "pooler.weight" in targets
    num_embeddings = 1
    names: dict[Any, Any] = {"encoder/embeddings_0/weight": "embeddings.tokens.weight"}
    if "embeddings.types.weight" in targets:
        num_embeddings = 2
        names["encoder/embeddings_1/weight"] = "embeddings.types.weight"
    names |= {
        "encoder/position_encodings/encodings": (
            "embeddings.positions.weight",
            SkipRows(skipped_positions),
        ),
        **ct2_norm("encoder/layernorm_embedding", "embeddings.norm"),
        **ct2_block("encoder/layer_{i}/"),
    }
    if has_pooler:
        names["pooler_dense/{p}"] = "pooler.{p}"
    settings = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": False,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layernorm_embedding": True,
        "num_source_embeddings": num_embeddings,
        "layer_norm_epsilon": getattr(config, "layer_norm_eps", 1e-12),
        "pooler": has_pooler,
    }
    return RuntimeModel(
        "encoder", settings, runtime_weights(names, model, {"i": config.num_layers})
    )


def encoder_gguf(
    config: Any,
    head: str,
    model: WeightMap,
    *,
    architecture: str,
    tokenizer: Mapping[str, str] = MappingProxyType({}),
    skipped_positions: int = 0,
    max_tokens: int | None = None,
    tanh_classifier: bool = True,  # between the linear maps of a classifier
) -> RuntimeModel | str:
    """Return an encoder as llama.cpp's first architecture of encoders describes it, or why not."""
    if head == "sequence-classification" and not tanh_classifier:
        return "its classifiers have tanh, and this one another activation function"
    reason = unsupported(config, head, model)
    if reason is not None:
        return reason
    if config.activation not in GGUF_GELU:
        return f"its activation function is gelu, not {config.activation}"
    targets = {entry.target for entry in model.entries()}
    if head == "none":
        classifier: dict[Any, Any] = {}
    elif head != "sequence-classification":
        return "it returns the embedding of a text or the scores of classes, and no other head"
    elif getattr(config, "pooling", None) is not None:
        return "it classifies by the first token"
    elif "head.dense.weight" in targets:
        classifier = {"cls.{p}": "head.dense.{p}", "cls.output.{p}": "head.out.{p}"}
    else:
        classifier = {"cls.{p}": "pooler.{p}", "cls.output.{p}": "head.{p}"}
    names: dict[Any, Any] = {
        "token_embd.weight": "embeddings.tokens.weight",
        "position_embd.weight": ("embeddings.positions.weight", SkipRows(skipped_positions)),
    }
    if "embeddings.types.weight" in targets:
        names["token_types.weight"] = "embeddings.types.weight"
    names |= {
        "token_embd_norm.{p}": "embeddings.norm.{p}",
        **layered(
            "blk.{i}.",
            {
                ("attn_q.{p}", "attn_k.{p}", "attn_v.{p}"): ("attention.qkv.{p}", QKV),
                "attn_output.{p}": "attention.out.{p}",
                "attn_output_norm.{p}": "attention_norm.{p}",
                "ffn_up.{p}": "ffn.up.{p}",
                "ffn_down.{p}": "ffn.down.{p}",
                "layer_output_norm.{p}": "ffn_norm.{p}",
            },
        ),
        **classifier,
    }
    settings = {
        **gguf_sizes(config),
        "context_length": max_tokens or config.max_positions,
        "attention.layer_norm_epsilon": getattr(config, "layer_norm_eps", 1e-12),
        "attention.causal": False,
        "hidden_activation": config.activation,
    }
    weights = runtime_weights(names, model, {"i": config.num_layers})
    return RuntimeModel(architecture, settings, weights, tokenizer=tokenizer)


def encoder_from_gguf(
    header: RuntimeHeader, model_type: str, prefix: str, *, skipped_positions: int = 0
) -> dict[str, Any]:
    """Return the Hub's keys of an encoder in llama.cpp's first architecture of encoders.

    Args:
        header: what the file says of the model.
        model_type: the Hub's name of the architecture.
        prefix: what the names of the Hub's classes begin with.
        skipped_positions: number of position embeddings that the format leaves out.
    """
    class_name = f"{prefix}Model"
    labels: Mapping[str, Any] = {}
    if "cls.output.weight" in header.shapes:
        class_name = f"{prefix}ForSequenceClassification"
        labels = header.labels()
    return {
        "model_type": model_type,
        "architectures": [class_name],
        **labels,
        **header.common_keys(),
        "max_position_embeddings": header.rows("position_embd.weight") + skipped_positions,
        "type_vocab_size": header.rows("token_types.weight"),
        "layer_norm_eps": header.number("attention.layer_norm_epsilon"),
        "hidden_act": header.text("hidden_activation", "gelu"),
    }
