"""Why the formats of other runtimes do not hold BigBird-Pegasus."""

from typing import Any

REASON = "it has no block-sparse attention"


def ctranslate2(config: Any, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return REASON


def gguf(config: Any, head: str) -> str:
    """Return why GGUF, as llama.cpp reads it, cannot hold a model."""
    return REASON
