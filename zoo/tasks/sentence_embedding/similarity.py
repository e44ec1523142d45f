"""The task similarity: similarity of sentence embeddings, by the function of the model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.embed import Embed
from zoo.inference.processing.records import RecordKeys
from zoo.inference.task import EncodedExample, EncodedTexts, texts_of
from zoo.overrides import override
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    from zoo.tokenizers.tokenizer import Text


class Similarity(Embed):
    """Similarity of the embeddings of two texts; see ``Embed`` for the embeddings.

    The checkpoint names the function: the cosine, from -1 to 1, by default, the dot product, or
    the negative of the Euclidean or Manhattan distance; of late interaction MaxSim, in which the
    first text is the query. Results have the key ``similarity``.
    """

    name: ClassVar[str] = "similarity"
    output_keys: ClassVar[tuple[str, ...]] = ("similarity",)
    vector_key: ClassVar[str | None] = None
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys(None)

    @override
    def encode(self, texts: "Sequence[Text]") -> list[Encoded]:
        encoded = super().encode([text for pair in texts for text in pair])
        pairs = zip(encoded[::2], encoded[1::2], strict=True)
        return [EncodedTexts(pair) for pair in pairs]

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the similarity of two texts; a cosine is 0 if an embedding is zero."""
        import numpy as np

        first_text, second_text = texts_of(item.encoded)
        count = len(self.split_text(first_text))
        first_result = super().merge(item._replace(encoded=first_text), rows[:count])
        second_result = super().merge(item._replace(encoded=second_text), rows[count:])
        first = first_result["embedding"].astype(np.float64)
        second = second_result["embedding"].astype(np.float64)
        return {"similarity": self.compare(first, second)}

    @override
    def to_json(self, added: dict[str, Any]) -> dict[str, Any]:
        return added
