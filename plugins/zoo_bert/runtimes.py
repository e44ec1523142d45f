"""BERT in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import encoder_ctranslate2, encoder_from_gguf, encoder_gguf
from zoo.families.runtimes import RuntimeHeader, RuntimeModel
from zoo_bert.weights import weights


def ctranslate2(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    return encoder_ctranslate2(config, head, weights(config, head))


def gguf(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    model = weights(config, head)
    return encoder_gguf(config, head, model, architecture="bert")


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a model; also of others with the same tensors, such as ELECTRA."""
    names = (header.architecture, header.tokenizer)
    if names != ("bert", "bert") or "token_types.weight" not in header.shapes:
        return None
    keys = encoder_from_gguf(header, "bert", "Bert")
    return {**keys, "pad_token_id": header.token("padding", 0)}
