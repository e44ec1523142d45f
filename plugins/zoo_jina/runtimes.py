"""Jina's encoders in the formats of other runtimes."""

from zoo_jina.config import JinaConfig


def ctranslate2(config: JinaConfig, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return "its encoder has neither linear biases in both directions nor rotary positions"
