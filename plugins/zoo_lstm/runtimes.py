"""Why the formats of other runtimes do not hold LSTMs."""

from typing import Any

REASON = "it has no LSTMs"


def ctranslate2(config: Any, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return REASON


def gguf(config: Any, head: str) -> str:
    """Return why GGUF, as llama.cpp reads it, cannot hold a model."""
    return REASON
