"""XLM and FlauBERT in the formats of other runtimes."""

from zoo.families.post_norm_runtimes import encoder_ctranslate2
from zoo.families.runtimes import RuntimeModel
from zoo_xlm.config import XLMConfig
from zoo_xlm.weights import weights


def ctranslate2(config: XLMConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if config.pre_norm:
        return "its encoder with norms before attention has a norm after the last block"
    if config.language_rows:
        return "it has no optional embeddings of languages"
    return encoder_ctranslate2(config, head, weights(config, head))


def gguf(config: XLMConfig, head: str) -> str:
    """Return why llama.cpp cannot hold a model."""
    return "its tokenizers cannot split texts into words as Moses' scripts do"
