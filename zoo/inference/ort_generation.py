"""Generating with graphs: a ``zoo.inference.generation.Decoder`` over ONNX Runtime."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.inference.ort_decoder import OrtDecoder, OrtDecodeState

PIECE = 1 << 26  # scores of prompts that are computed at once, where the last ones are wanted


class OrtGenerator:
    """A model in ONNX Runtime that continues token sequences.

    Args:
        graphs: the model.
        config: its configuration.
    """

    def __init__(self, graphs: OrtDecoder, config: Any) -> None:
        self._graphs, self._config = graphs, config

    def prefill(
        self, inputs: Mapping[str, Tensor], max_new_tokens: int
    ) -> tuple[Tensor, OrtDecodeState]:
        """See ``zoo.inference.generation.Decoder``."""
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        ids = arrays["input_ids"]
        held = self._graphs.begin({"attention_mask": np.ones_like(ids), **arrays})
        if self._graphs.target != "input_ids":
            ids = np.full_like(ids[:, :1], self._config.decoder_start_token_id)
        width = max(1, PIECE // (len(ids) * self._config.vocab_size))
        for start in range(0, ids.shape[1], width):
            logits = self._next(ids[:, start : start + width], held)
        return logits, held

    def step(self, tokens: Tensor, state: OrtDecodeState) -> Tensor:
        """See ``zoo.inference.generation.Decoder``."""
        return self._next(tokens.numpy()[:, None], state)

    def _next(self, tokens: NDArray[np.int64], held: OrtDecodeState) -> Tensor:
        return torch.from_numpy(self._graphs.read(tokens, held)[:, -1].astype(np.float32))
