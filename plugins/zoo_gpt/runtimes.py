"""GPT and GPT-2 in the formats of other runtimes."""

from typing import Any

from zoo.families.decoder_runtimes import (
    CT2_LOGITS_ONLY,
    GGUF_BLOCKS,
    GGUF_LOGITS_ONLY,
    ct2_problem,
    decoder_ctranslate2,
    decoder_gguf,
)
from zoo.families.post_norm_runtimes import GGUF_GELU, ct2_block, ct2_norm
from zoo.families.runtimes import RuntimeHeader, RuntimeModel
from zoo_gpt.config import GptConfig
from zoo_gpt.weights import weights


def ctranslate2(config: GptConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return CT2_LOGITS_ONLY
    if not config.scale_attention or config.scale_by_layer:
        return "it divides attention scores by the root of a head's width, in all layers"
    if problem := ct2_problem(config, head):
        return problem
    is_pre_norm = config.norm == "pre"
    names: dict[Any, Any] = {
        "decoder/position_encodings/encodings": "embeddings.positions.weight",
        **ct2_block("decoder/layer_{i}/"),
    }
    if is_pre_norm:
        names |= ct2_norm("decoder/layer_norm", "final_norm")
    return decoder_ctranslate2(config, weights(config, head), names, {"pre_norm": is_pre_norm})


def gguf(config: GptConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "causal-lm":
        return GGUF_LOGITS_ONLY
    if config.norm != "pre":
        return "its norms precede attention and feed-forward network, as in GPT-2"
    if not config.scale_attention or config.scale_by_layer:
        return "it divides attention scores by the root of a head's width, in all layers"
    if config.activation not in GGUF_GELU:
        return f"its activation function is gelu, not {config.activation}"
    names = {"position_embd.weight": "embeddings.positions.weight", **GGUF_BLOCKS}
    settings = {
        "feed_forward_length": config.inner_size,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "hidden_activation": config.activation,
    }
    rules = weights(config, head)
    return decoder_gguf(config, rules, "gpt2", names, settings, tokenizer={"pre": "gpt-2"})


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a GPT-2."""
    if header.architecture != "gpt2":
        return None
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": header.rows("token_embd.weight"),
        "n_positions": header.rows("position_embd.weight"),
        "n_embd": header.count("embedding_length"),
        "n_layer": header.count("block_count"),
        "n_head": header.count("attention.head_count"),
        "n_inner": header.count("feed_forward_length"),
        "layer_norm_epsilon": header.number("attention.layer_norm_epsilon"),
        "activation_function": header.text("hidden_activation", "gelu_new"),
        "tie_word_embeddings": "output.weight" not in header.shapes,
    }
