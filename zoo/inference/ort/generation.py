"""Generation in ONNX Runtime: the interface ``Decoder`` over an ``OrtDecoder``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.inference.ort.decoder import OrtDecoder, OrtDecodeState


class OrtGenerator:
    """A ``zoo.inference.generation.decoder.SessionDecoder`` in ONNX Runtime."""

    def __init__(self, graphs: OrtDecoder, config: Any) -> None:
        self._graphs = graphs
        self._config = config

    def prefill(
        self, inputs: Mapping[str, Tensor], max_new_tokens: int
    ) -> tuple[Tensor, OrtDecodeState]:
        """Run the prompts; return the scores of their next tokens, and the state."""
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        ids = arrays["input_ids"]
        state = self._graphs.begin({"attention_mask": np.ones_like(ids), **arrays})
        start = arrays.get(self._graphs.target)
        if start is None:
            start = np.full_like(ids[:, :1], self._config.decoder_start_token_id)
        return self._next(start, state), state

    def step(self, tokens: Tensor, state: OrtDecodeState) -> Tensor:
        """Run one new token of each row; return the scores of the next ones."""
        return self._next(tokens.numpy()[:, None], state)

    def _next(self, tokens: NDArray[np.int64], state: OrtDecodeState) -> Tensor:
        logits = self._graphs.read(tokens, state, last=True)[:, -1]
        return torch.from_numpy(logits.astype(np.float32))
