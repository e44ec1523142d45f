"""Evaluation of sentence embeddings: correlation of cosine similarity with human ratings."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import label_number
from zoo.data.readers.text_groups import iter_text_groups
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Reread, Result
from zoo.evaluation.metrics import bootstrap_samples, correlations
from zoo.evaluation.one_sided import warn_of_equal_numbers
from zoo.inference.processing.records import TextExample
from zoo.inference.tasks.checks import require_head
from zoo.inference.tasks.similarity import Similarity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint


class SentenceEmbedding(Evaluation):
    """Correlations of the cosine similarity of two embeddings with scores, as of STS.

    Spearman's is the measure of STS (Reimers et al. 2016, section 5). Correlations with a constant
    are 0. Intervals are over pairs.

    Args:
        *args: see ``Evaluation``.
        text: column of the first text.
        pair: column of the second text.
        label: column of the score.
        seed: seed of the intervals.
        **options: see ``Evaluation``.
    """

    name: ClassVar[str] = "sentence-embedding"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        pair: str | None = None,
        label: str = "label",
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if pair is None:
            raise UsageError(
                f"{self.name} compares two texts", "name the column of the second with --pair"
            )
        self.texts, self.label, self.seed = (text, pair), label, seed
        self.task = Similarity(self.checkpoint, self.session)

    @classmethod
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        """See ``Evaluation``."""
        require_head(checkpoint, Similarity.name)

    def evaluate(self, files: Sequence[Path]) -> Result:
        """See ``Evaluation``."""
        import numpy as np

        samples = Reread(lambda: iter_text_groups(files, self.texts, self.label), self.limit)
        scores = np.fromiter((label_number(s.label, s.location) for s in samples), np.float64)
        self.warn(warn_of_equal_numbers(scores.tolist()))
        records = (TextExample(s.texts[0], s.texts[1], location=s.location) for s in samples)
        similarities = (added["similarity"] for _, added in self.task.stream(records))
        cosines = np.fromiter(similarities, np.float64)

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            values = correlations(cosines[rows], scores[rows])
            return {"spearman": values["spearman"], "pearson": values["pearson"]}

        values = metrics(np.arange(len(scores)))
        intervals = bootstrap_samples(metrics, len(scores), self.seed)
        return Result({**values, "samples": len(scores)}, {"intervals": intervals})
