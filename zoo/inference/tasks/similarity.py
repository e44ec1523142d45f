"""The task similarity: cosine similarity of sentence embeddings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.processing.pooling import unit
from zoo.inference.processing.records import RecordKeys
from zoo.inference.tasks.base import EncodedExample, EncodedTexts
from zoo.inference.tasks.embed import Embed
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    from zoo.tokenizers.tokenizer import Text


class Similarity(Embed):
    """Cosine similarity of the embeddings of two texts; see ``Embed`` for the embeddings.

    Results have the key ``similarity``, from -1 to 1.
    """

    name: ClassVar[str] = "similarity"
    output_keys: ClassVar[tuple[str, ...]] = ("similarity",)
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys(None)

    def encode(self, texts: "Sequence[Text]") -> list[Encoded]:
        """See ``Task``."""
        encoded = super().encode([text for pair in texts for text in pair])
        pairs = zip(encoded[::2], encoded[1::2], strict=True)
        return [EncodedTexts(pair) for pair in pairs]

    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the cosine similarity of two texts; 0 if an embedding is zero."""
        import numpy as np

        first, second = (unit(row["embedding"].astype(np.float64)) for row in rows)
        return {"similarity": float(first @ second)}

    def render(self, added: dict[str, Any]) -> dict[str, Any]:
        """See ``Task``."""
        return added
