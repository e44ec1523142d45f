"""Session over llama.cpp, on the CPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.exporting.targets.gguf.llama import LlamaCpp
from zoo.exporting.targets.session import TargetSession, row_lengths
from zoo.families.onnx import EMBEDDING, LOGITS
from zoo.overrides import override
from zoo.sentence_models.numpy_modules import unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNLIMITED = 512


def open_llama(checkpoint: Checkpoint, file: Path, threads: int | None) -> LlamaCpp:
    """Open a GGUF file of a checkpoint."""
    longest = checkpoint.family.max_seq_len(checkpoint.config) or UNLIMITED
    embeds = not checkpoint.head.has_cache
    return LlamaCpp(file, max_tokens=longest, threads=threads, embeds=embeds)


class LlamaSession(TargetSession):
    """A GGUF file in llama.cpp: the embedding of a text, the scores of classes, or logits."""

    reads_token_types = False
    completes_inputs = False  # It takes rows without padding.

    def __init__(
        self, checkpoint: Checkpoint, file: Path, precision: str, threads: int | None = None
    ) -> None:
        returned = LOGITS if LOGITS in checkpoint.onnx_spec.outputs else EMBEDDING
        super().__init__(checkpoint, "gguf", precision, outputs=[returned])
        pooling = checkpoint.model.pooling
        self._normalizes = pooling is not None and pooling.normalize
        self._llama = open_llama(checkpoint, file, threads)

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        ids = arrays["input_ids"]
        lengths = row_lengths(arrays)
        tokens = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
        (name,) = self.outputs
        if len(self._spec.outputs.get(name, ())) == 3:  # logits of each token
            found = self._llama.run(tokens, "logits")
            logits = np.zeros((*ids.shape, found[0].shape[-1]), np.float32)
            for row, values in enumerate(found):
                logits[row, : len(values)] = values
            return {name: logits}
        vectors = np.stack(self._llama.run(tokens, "embedding"))
        # llama.cpp pools, and leaves the length to the program that calls it
        return {name: unit(vectors) if self._normalizes else vectors}
