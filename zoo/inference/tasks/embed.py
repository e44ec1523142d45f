"""The task embed: sentence embeddings."""

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.processing.batching import Batch
from zoo.inference.processing.numbers import short_floats
from zoo.inference.processing.pooling import pool
from zoo.inference.processing.records import TextExample
from zoo.inference.tasks.base import BatchTask, EncodedExample, TaskWarning
from zoo.tokenizers.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embed(BatchTask):
    """Sentence embeddings, pooled as the sentence-transformers files of the checkpoint specify.

    Without such files the embedding is the mean over the tokens, not normalized, with a
    ``TaskWarning``. Results have the key ``embedding``.
    """

    name: ClassVar[str] = "embed"
    output_keys: ClassVar[tuple[str, ...]] = ("embedding",)

    @property
    def pooling(self) -> Pooling:
        """Pooling of the checkpoint."""
        return self.checkpoint.model.pooling or Pooling()

    def limits(self) -> list[int]:
        """Return the limits on the number of tokens, with that of the sentence encoder."""
        limit = self.pooling.max_tokens
        return [*super().limits(), *([limit] if limit is not None else [])]

    def prepare(self, text: str) -> str:
        """See ``Task``."""
        return text.lower() if self.pooling.lowercase else text

    def check(self, item: EncodedExample) -> None:
        """Raise an error for a text without tokens."""
        self.require_tokens(item)

    def compute(self, items: list[EncodedExample], batch: Batch) -> list[dict[str, Any]]:
        """See ``Task``."""
        hidden = self.output("last_hidden_state", items, batch)  # (texts, tokens, hidden)
        return [{"embedding": vector} for vector in pool(hidden, batch.mask, self.pooling)]

    def render(self, added: dict[str, Any]) -> dict[str, Any]:
        """See ``Task``."""
        return {"embedding": short_floats(added["embedding"])}

    def stream(
        self, records: Iterable[TextExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        """See ``Task``."""
        if self.checkpoint.model.pooling is None:
            warnings.warn(
                f"{self.checkpoint.path} does not say how it pools tokens: taking their mean, "
                "not scaled to unit length",
                TaskWarning,
                stacklevel=2,
            )
        yield from super().stream(records)

    def vectors(self, records: Iterable[TextExample]) -> "NDArray[np.floating[Any]]":
        """Return the embeddings as one array, (texts, hidden)."""
        import numpy as np

        rows = [added["embedding"] for _, added in self.stream(records)]
        if not rows:
            return np.empty((0, getattr(self.checkpoint.config, "hidden_size", 0)), np.float32)
        return np.stack(rows)
