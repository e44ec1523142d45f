"""ELECTRA in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import encoder_ctranslate2, encoder_gguf
from zoo.families.runtimes import RuntimeModel
from zoo_electra.weights import weights


def ctranslate2(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    return encoder_ctranslate2(config, head, weights(config, head))


def gguf(config: Any, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    model = weights(config, head)
    return encoder_gguf(config, head, model, architecture="bert", tanh_classifier=False)
