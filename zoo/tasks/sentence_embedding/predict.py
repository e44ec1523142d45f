"""The task embed: sentence embeddings."""

import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.batching import Batch
from zoo.inference.processing.numbers import short_floats
from zoo.inference.processing.pooling import count_prompt_tokens, pool
from zoo.inference.processing.records import TextExample, validate_text
from zoo.inference.task import BatchTask, EncodedExample, EncodedTexts, TaskWarning
from zoo.overrides import override
from zoo.tokenizers.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embed(BatchTask):
    """Sentence embeddings, pooled as the sentence-transformers files of the checkpoint specify.

    Without such files the embedding is the mean over the tokens, not normalized, with a
    ``TaskWarning``. Results have the key ``embedding``. A text follows a prompt of the checkpoint,
    by default its default prompt, or another text in place of one.
    """

    name: ClassVar[str] = "embed"
    output_keys: ClassVar[tuple[str, ...]] = ("embedding",)

    def __init__(
        self,
        *args: Any,
        prompt_name: str | None = None,
        prompt: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if prompt is not None and prompt_name is not None:
            raise UsageError("a prompt is a name or a text, and not both", "leave one out")
        if prompt is not None:
            validate_text(prompt, "the prompt")
        self.prompt = self.pooling.prompt(prompt_name) if prompt is None else prompt

    @property
    def pooling(self) -> Pooling:
        """Pooling of the checkpoint."""
        return self.checkpoint.model.pooling or Pooling()

    @override
    def limits(self) -> list[int]:
        """Return the limits on the number of tokens, with that of the sentence encoder."""
        limit = self.pooling.max_tokens
        return [*super().limits(), *([limit] if limit is not None else [])]

    @override
    def prepare(self, text: str) -> str:
        text = self.prompt + text
        return text.lower() if self.pooling.lowercase else text

    @cached_property
    def prompt_tokens(self) -> int:
        """Number of tokens at the beginning of each text that are not pooled."""
        if self.pooling.include_prompt or not self.prompt:
            return 0
        return count_prompt_tokens(self.tokenizer, self.prepare(""), self.max_tokens)

    @override
    def check(self, item: EncodedExample) -> None:
        """Raise an error for a text without tokens to pool."""
        self.require_tokens(item)
        encoded = item.encoded
        texts = encoded.texts if isinstance(encoded, EncodedTexts) else [encoded]
        if any(len(text.ids) <= self.prompt_tokens for text in texts):
            raise UsageError(f"{item.record.location} has no tokens after the prompt")

    @override
    def compute(self, items: list[EncodedExample], batch: Batch) -> list[dict[str, Any]]:
        hidden = self.output("last_hidden_state", items, batch)  # (texts, tokens, hidden)
        mask = batch.mask.copy()
        mask[:, : self.prompt_tokens] = False
        return [{"embedding": vector} for vector in pool(hidden, mask, self.pooling)]

    @override
    def render(self, added: dict[str, Any]) -> dict[str, Any]:
        return {"embedding": short_floats(added["embedding"])}

    @override
    def stream(
        self, records: Iterable[TextExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        if self.checkpoint.model.pooling is None:
            warnings.warn(
                f"{self.checkpoint.path} does not say how it pools tokens: taking their mean, "
                "not scaled to unit length",
                TaskWarning,
                stacklevel=2,
            )
        yield from super().stream(records)

    def vectors(self, records: Iterable[TextExample]) -> "NDArray[np.floating[Any]]":
        """Return the embeddings as one array, (texts, dimensions)."""
        import numpy as np

        rows = [added["embedding"] for _, added in self.stream(records)]
        if not rows:
            size = self.pooling.dimension(getattr(self.checkpoint.config, "hidden_size", 0))
            return np.empty((0, size), np.float32)
        return np.stack(rows)
