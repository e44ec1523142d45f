"""DistilBERT in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import encoder_ctranslate2, encoder_gguf
from zoo.families.runtimes import RuntimeHeader, RuntimeModel
from zoo_distilbert.weights import weights


def ctranslate2(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    return encoder_ctranslate2(config, head, weights(config, head))


def gguf(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    model = weights(config, head)
    return encoder_gguf(config, head, model, architecture="bert", tanh_classifier=False)


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a model, which has no token types."""
    names = (header.architecture, header.tokenizer)
    if names != ("bert", "bert") or "token_types.weight" in header.shapes:
        return None
    return {
        "model_type": "distilbert",
        "architectures": ["DistilBertModel"],
        "vocab_size": header.rows("token_embd.weight"),
        "dim": header.count("embedding_length"),
        "n_layers": header.count("block_count"),
        "n_heads": header.count("attention.head_count"),
        "hidden_dim": header.count("feed_forward_length"),
        "max_position_embeddings": header.rows("position_embd.weight"),
        "activation": header.text("hidden_activation", "gelu"),
        "pad_token_id": header.token("padding", 0),
    }
