"""The probabilities of logits."""

from typing import Any

import numpy as np


def softmax(x: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    powers: np.ndarray[Any, Any] = np.exp(x)
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers
