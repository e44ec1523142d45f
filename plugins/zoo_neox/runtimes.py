"""GPT-NeoX in the formats of other runtimes."""

from typing import Any

from zoo.families.decoder_runtimes import (
    GGUF_BLOCKS,
    GGUF_LOGITS_ONLY,
    ct2_problem,
    decoder_ctranslate2,
    decoder_gguf,
)
from zoo.families.post_norm_runtimes import GGUF_GELU, ct2_norm
from zoo.families.runtimes import RuntimeHeader, RuntimeModel, layered
from zoo_neox.config import NeoxConfig
from zoo_neox.weights import weights


def ctranslate2(config: NeoxConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if config.rope_type != "default":
        return f"its frequencies are not scaled by {config.rope_type}"
    if problem := ct2_problem(config, head):
        return problem
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
        **ct2_norm("decoder/layer_norm", "final_norm"),
        **layered("decoder/layer_{i}/", block),
    }
    settings = {
        "rotary_dim": config.rotary_width,
        "rotary_interleave": False,
        "rotary_base": config.rope_theta,
        "parallel_residual": config.parallel,
    }
    return decoder_ctranslate2(config, weights(config, head), names, settings)


def gguf(config: NeoxConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "causal-lm":
        return GGUF_LOGITS_ONLY
    if config.activation not in GGUF_GELU:
        return f"its activation function is gelu, not {config.activation}"
    if config.tie_embeddings or not config.attention_bias:
        return "it has output embeddings of its own, and biases in attention"
    if config.rope_type != "default":
        return f"its frequencies are not scaled by {config.rope_type} here"
    settings = {
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "rope.dimension_count": config.rotary_width,
        "rope.freq_base": config.rope_theta,
        "use_parallel_residual": config.parallel,
        "hidden_activation": config.activation,
    }
    rules = weights(config, head)
    return decoder_gguf(config, rules, "gptneox", GGUF_BLOCKS, settings, tokenizer={"pre": "olmo"})


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a GPT-NeoX."""
    if header.architecture != "gptneox":
        return None
    width = header.count("embedding_length")
    heads = header.count("attention.head_count")
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        **header.common_keys(),
        "layer_norm_eps": header.number("attention.layer_norm_epsilon"),
        "rotary_pct": header.count("rope.dimension_count") * heads / width,
        "rotary_emb_base": header.number("rope.freq_base"),
        "use_parallel_residual": bool(header.metadata.get("gptneox.use_parallel_residual", True)),
        "hidden_act": header.text("hidden_activation", "gelu"),
    }
