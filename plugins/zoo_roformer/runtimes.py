"""RoFormer in the formats of other runtimes, none of which has its positions."""

from zoo_roformer.config import RoFormerConfig


def ctranslate2(config: RoFormerConfig, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return "its encoder has no rotary positions"


def gguf(config: RoFormerConfig, head: str) -> str:
    """Return why llama.cpp cannot hold a model."""
    return "no architecture with norms after the residual sums rotates neighbouring components"
