"""Why the formats of other runtimes do not hold ELMo."""

from typing import Any

REASON = "it has neither LSTMs nor character convolutions"


def ctranslate2(config: Any, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return REASON


def gguf(config: Any, head: str) -> str:
    """Return why GGUF, as llama.cpp reads it, cannot hold a model."""
    return REASON


def openvino(config: Any, head: str) -> str:
    """Return why OpenVINO cannot hold a model."""
    return "its reader of ONNX has no Scan, the loop in which the LSTMs run"
