"""Why the formats of other runtimes do not hold GTE's encoder."""

from typing import Any


def ctranslate2(config: Any, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return "its encoder has no rotary positions"


def gguf(config: Any, head: str) -> str:
    """Return why GGUF, as llama.cpp reads it, cannot hold a model."""
    return "it has no encoder with these feed-forward networks, of which one map has a bias"
