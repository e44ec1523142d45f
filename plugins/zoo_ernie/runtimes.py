"""ERNIE in the formats of other runtimes, which have BERT's embeddings."""

from typing import Any

from zoo.families.post_norm_runtimes import encoder_ctranslate2, encoder_gguf
from zoo.families.runtimes import RuntimeModel
from zoo_ernie.weights import weights

REASON = "it has no embeddings of tasks"


def ctranslate2(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if config.use_task_id:
        return REASON
    return encoder_ctranslate2(config, head, weights(config, head))


def gguf(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if config.use_task_id:
        return REASON
    return encoder_gguf(config, head, weights(config, head), architecture="bert")
