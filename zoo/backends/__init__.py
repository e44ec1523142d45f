"""Backends: one Session interface over torch and ONNX Runtime."""

from zoo.backends.base import Session

__all__ = ["Session"]
