"""Ettin's decoders in the formats of other runtimes."""

from zoo_ettin.config import EttinConfig


def ctranslate2(config: EttinConfig, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return "its decoder has no attention that is limited to a window in some layers"


def gguf(config: EttinConfig, head: str) -> str:
    """Return why llama.cpp cannot hold a model."""
    return "its architecture modern-bert has no causal attention"
