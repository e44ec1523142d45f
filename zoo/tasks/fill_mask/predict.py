"""The task fill-mask: predictions for masked tokens."""

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import softmax
from zoo.inference.task import BatchTask, EncodedExample
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FillMask(BatchTask):
    """Most likely tokens at each mask token of a text, which may have several.

    Results have the key ``masks``: for each mask token its ``position`` (of its first character)
    and ``predictions``, each with ``token`` and ``score`` (its probability), the best first.
    """

    name: ClassVar[str] = "fill-mask"
    output_keys: ClassVar[tuple[str, ...]] = ("masks",)
    chunk_size: int = 512
    max_batch_tokens = 512  # logits are as wide as the vocabulary: 512 x 30,522 x 4 bytes are 60 MB

    def __init__(self, *args: Any, top_k: int = 5, **options: Any) -> None:
        super().__init__(*args, **options)
        vocabulary = self.checkpoint.config.vocab_size
        if not 1 <= top_k <= vocabulary:
            raise UsageError(
                f"{top_k} predictions for a mask cannot be given", f"ask for 1 to {vocabulary}"
            )
        if self.tokenizer.mask_id is None:
            raise UsageError(f"the tokenizer of {self.checkpoint.name} has no mask token")
        self.top_k = top_k
        self.names: list[str | None] = [None] * vocabulary
        for number in range(vocabulary):
            # embeddings are often padded to more rows than the tokenizer has tokens
            with contextlib.suppress(UsageError):
                self.names[number] = self.tokenizer.token(number)
        self.nameless = [number for number, name in enumerate(self.names) if name is None]

    @override
    def check(self, item: EncodedExample) -> None:
        """Check that the text has a mask token and that truncation left it."""
        if self.tokenizer.mask_id in item.encoded.ids:
            return
        mask = self.tokenizer.mask_token
        location = item.record.location
        if item.encoded.truncated and mask and mask in item.record.text:
            raise UsageError(
                f"{location}: {mask} is in the part of the text that was cut at {self.max_tokens} "
                "tokens",
                "shorten it",
            )
        raise UsageError(f"{location} has no mask token", f"write {mask} where a word is missing")

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        logits = self.output("logits", items, batch)  # (texts, tokens, vocabulary)
        results = []
        for item, row in zip(items, logits, strict=True):
            ids = item.encoded.ids
            offsets = item.encoded.offsets
            positions = [k for k, token in enumerate(ids) if token == self.tokenizer.mask_id]
            scores = softmax(row[positions])  # (masks, vocabulary)
            results.append(
                {
                    "masks": [
                        {"position": offsets[place][0], "predictions": self._best(line)}
                        for place, line in zip(positions, scores, strict=True)
                    ]
                }
            )
        return results

    def _best(self, scores: "NDArray[np.float64]") -> list[dict[str, Any]]:
        """Return the ``top_k`` most likely tokens; ties are ordered by id."""
        import numpy as np

        scores[self.nameless] = -1
        least = np.partition(scores, -self.top_k)[-self.top_k]
        able = np.flatnonzero(scores >= max(least, 0))  # in order of id
        best = able[np.argsort(-scores[able], kind="stable")][: self.top_k].tolist()
        return [{"token": self.names[k], "score": float(scores[k])} for k in best]
