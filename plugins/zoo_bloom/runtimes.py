"""BLOOM in the formats of other runtimes."""

from typing import Any

from zoo.families.decoder_runtimes import (
    CT2_LOGITS_ONLY,
    GGUF_BLOCKS,
    GGUF_LOGITS_ONLY,
    decoder_ctranslate2,
    decoder_gguf,
)
from zoo.families.post_norm_runtimes import ct2_block, ct2_norm
from zoo.families.runtimes import RuntimeHeader, RuntimeModel
from zoo_bloom.config import BloomConfig
from zoo_bloom.weights import weights

# The released models were trained on rows of this length. llama.cpp asks for a limit, which
# attention does not have.
TRAINED_LENGTH = 2048


def ctranslate2(config: BloomConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return CT2_LOGITS_ONLY
    names: dict[Any, Any] = {
        **ct2_norm("decoder/layernorm_embedding", "embeddings.norm"),
        **ct2_norm("decoder/layer_norm", "final_norm"),
        **ct2_block("decoder/layer_{i}/"),
    }
    settings = {
        "layernorm_embedding": True,
        "alibi": True,
        "alibi_use_positive_positions": True,
    }
    return decoder_ctranslate2(config, weights(config, head), names, settings)


def gguf(config: BloomConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "causal-lm":
        return GGUF_LOGITS_ONLY
    names = {"token_embd_norm.{p}": "embeddings.norm.{p}", **GGUF_BLOCKS}
    settings = {
        "context_length": TRAINED_LENGTH,
        "attention.head_count_kv": config.num_heads,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
    }
    rules = weights(config, head)
    return decoder_gguf(config, rules, "bloom", names, settings, tokenizer={"pre": "bloom"})


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a BLOOM."""
    if header.architecture != "bloom":
        return None
    return {
        "model_type": "bloom",
        "architectures": ["BloomForCausalLM"],
        "vocab_size": header.rows("token_embd.weight"),
        "hidden_size": header.count("embedding_length"),
        "n_layer": header.count("block_count"),
        "n_head": header.count("attention.head_count"),
        "layer_norm_epsilon": header.number("attention.layer_norm_epsilon"),
    }
