"""Search of texts that are read in windows: a text has the score of its windows together."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zoo.inference.processing.search import BestScores
from zoo.inference.processing.windows import WindowPooling, pool_scores
from zoo.overrides import override
from zoo.tasks.retrieval.vectors import CorpusVectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

WINDOW = "window"  # key of results: the characters of the window that scores best
Span = Sequence[int]  # first character of a window in its text, and the one after its last


class WindowVectors:
    """Vectors of the windows of a corpus.

    Args:
        vectors: an empty corpus, which gets the vectors of all windows.
        pooling: how the scores of the windows of a text become its score.
        dtype: dtype of the session, by which ``score_rows`` knows the rounding errors.
    """

    def __init__(self, vectors: CorpusVectors, pooling: WindowPooling, dtype: str) -> None:
        self.vectors = vectors
        self.pooling = pooling
        self.dtype = dtype
        self._starts: list[int] = []
        self._spans: list[Span] = []

    def add(self, windows: "Floats", spans: Sequence[Span]) -> None:
        """Add the next text.

        Args:
            windows: vectors of its windows, (windows, dimensions).
            spans: characters of each window.
        """
        self._starts.append(self.vectors.count)
        self._spans += spans
        for window in windows:
            self.vectors.add(window)

    def search(self, queries: "list[Floats]", top_k: int) -> Iterator[BestScores]:
        """Yield the best texts of each query."""
        import numpy as np

        starts = np.array(self._starts)
        for window_scores, _ in self.vectors.score_rows(queries, self.dtype):
            scores = pool_scores(window_scores, starts, self.pooling)
            best = BestTexts(min(top_k, len(starts)))
            best.update(scores[None], 0)
            if self.pooling == "max":
                best.spans = self._best_spans(window_scores, best.ids[0])
            yield best

    def _best_spans(
        self, window_scores: "Floats", texts: "NDArray[np.integer[Any]]"
    ) -> dict[int, list[int]]:
        """Return the characters of the best window of each of some texts."""
        ends = [*self._starts[1:], self.vectors.count]
        spans = {}
        for text in texts.tolist():
            start = self._starts[text]
            best = start + int(window_scores[start : ends[text]].argmax())
            spans[text] = list(self._spans[best])
        return spans


class BestTexts(BestScores):
    """The best texts of one query, with the windows that score best.

    Attributes:
        spans: number of a text -> characters of its best window; empty if scores are pooled.
    """

    def __init__(self, count: int) -> None:
        super().__init__(1, count)
        self.spans: dict[int, list[int]] = {}

    @override
    def results(self) -> list[list[dict[str, Any]]]:
        rows = super().results()
        for match in rows[0]:
            span = self.spans.get(match["corpus_id"])
            if span is not None:
                match[WINDOW] = span
        return rows
