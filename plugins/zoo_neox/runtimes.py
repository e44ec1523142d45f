"""GPT-NeoX in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS, GGUF_GELU, ct2_norm
from zoo.families.runtimes import RuntimeHeader, RuntimeModel, layered, runtime_weights
from zoo_neox.config import NeoxConfig
from zoo_neox.weights import weights


def ctranslate2(config: NeoxConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return "its generator returns the logits of a language model"
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    norms = {"self_attention/layer_norm": "attention_norm", "ffn/layer_norm": "ffn_norm"}
    if config.parallel:
        norms = {"input_layer_norm": "attention_norm", "post_attention_layer_norm": "ffn_norm"}
    block: dict[Any, Any] = {
        "self_attention/linear_0/{p}": "attention.qkv.{p}",
        "self_attention/linear_1/{p}": "attention.out.{p}",
        "ffn/linear_0/{p}": "ffn.up.{p}",
        "ffn/linear_1/{p}": "ffn.down.{p}",
    }
    for theirs, ours in norms.items():
        block |= ct2_norm(theirs, ours)
    names: dict[Any, Any] = {
        "decoder/embeddings/weight": "embeddings.tokens.weight",
        **ct2_norm("decoder/layer_norm", "final_norm"),
        **layered("decoder/layer_{i}/", block),
    }
    copies: dict[str, str] = {}
    if config.tie_embeddings:
        copies["decoder/projection/weight"] = "embeddings.tokens.weight"
    else:
        names["decoder/projection/weight"] = "head.weight"
    settings = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": True,
        "activation": CT2_ACTIVATIONS[config.activation],
        "rotary_dim": config.rotary_width,
        "rotary_interleave": False,
        "rotary_base": config.rope_theta,
        "parallel_residual": config.parallel,
        "layer_norm_epsilon": config.layer_norm_eps,
    }
    model = runtime_weights(names, weights(config, head), {"i": config.num_layers})
    return RuntimeModel("decoder", settings, model, copies=copies)


def gguf(config: NeoxConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "causal-lm":
        return "it returns the logits of a language model"
    if config.activation not in GGUF_GELU:
        return f"its activation function is gelu, not {config.activation}"
    names: dict[Any, Any] = {
        "token_embd.weight": "embeddings.tokens.weight",
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
    if config.tie_embeddings or not config.attention_bias:
        return "it has output embeddings of its own, and biases in attention"
    names["output.weight"] = "head.weight"
    settings = {
        "context_length": config.max_positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "block_count": config.num_layers,
        "attention.head_count": config.num_heads,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "rope.dimension_count": config.rotary_width,
        "rope.freq_base": config.rope_theta,
        "use_parallel_residual": config.parallel,
        "hidden_activation": config.activation,
    }
    model = runtime_weights(names, weights(config, head), {"i": config.num_layers})
    return RuntimeModel("gptneox", settings, model, tokenizer={"pre": "olmo"})


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a GPT-NeoX."""
    if header.architecture != "gptneox":
        return None
    width = header.count("embedding_length")
    heads = header.count("attention.head_count")
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "vocab_size": header.rows("token_embd.weight"),
        "hidden_size": width,
        "intermediate_size": header.count("feed_forward_length"),
        "num_hidden_layers": header.count("block_count"),
        "num_attention_heads": heads,
        "max_position_embeddings": header.count("context_length"),
        "layer_norm_eps": header.number("attention.layer_norm_epsilon"),
        "rotary_pct": header.count("rope.dimension_count") * heads / width,
        "rotary_emb_base": header.number("rope.freq_base"),
        "use_parallel_residual": bool(header.metadata.get("gptneox.use_parallel_residual", True)),
        "hidden_act": header.text("hidden_activation", "gelu"),
    }
