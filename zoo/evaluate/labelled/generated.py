"""Evaluation of generated texts on tables of sources and targets."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns
from zoo.data.readers.text_to_text import TextToText, prefix_of, read_text_to_text, split_name
from zoo.evaluate.base import Evaluation, Result
from zoo.evaluate.metrics import bootstrap_samples
from zoo.inference.likelihood import Seq2SeqLikelihood
from zoo.inference.processing.records import TextExample
from zoo.inference.scoring import ScoredRow, TextScore
from zoo.inference.tasks.checks import require_head
from zoo.inference.tasks.seq2seq import Seq2Seq as Generation
from zoo.io.limits import MAX_NEW_TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers import Encoded


class Seq2Seq(Evaluation):
    """Exact match of generated texts, and the loss of the targets.

    ``exact_match`` is the fraction of samples whose generated text equals the target, white space
    at the ends aside; ``loss`` the mean negative log-likelihood of the targets' tokens in nats, the
    end-of-sequence token included, and ``accuracy`` that of single tokens after those of the target
    before them. Intervals are over samples.

    Args:
        *args: see ``Evaluation``.
        text: column of the source.
        label: column of the target.
        prefix: text before each source, also by name of the data set.
        max_new_tokens: largest number of tokens to generate; by default those of the longest
            target.
        num_beams: number of beams.
        seed: seed of the intervals.
        **options: see ``Evaluation``.
    """

    name: ClassVar[str] = "seq2seq"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        prefix: str | dict[str, str] = "",
        max_new_tokens: int | None = None,
        num_beams: int = 1,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns, self.prefix, self.seed = Columns(text, label), prefix, seed
        self.max_new_tokens, self.num_beams = max_new_tokens, num_beams
        self.scorer = Seq2SeqLikelihood(self.checkpoint, self.session)

    @classmethod
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        """See ``Evaluation``."""
        require_head(checkpoint, Generation.name)

    @classmethod
    def split_names(cls, data: Sequence[Path]) -> tuple[list[Path], dict[str, Any]]:
        """See ``Evaluation``; sources of ``NAME=FILE`` have the prefix of fine-tuning."""
        named = [split_name(str(path)) for path in data]
        prefixes = {name: prefix_of(name, None) for name, _ in named if name}
        return [Path(file) for _, file in named], {"prefix": prefixes} if prefixes else {}

    def evaluate(self, files: Sequence[Path]) -> Result:
        """See ``Evaluation``."""
        import numpy as np

        samples = read_text_to_text([str(file) for file in files], self.columns, self.prefix)
        samples = samples[: self.limit]
        targets = self.scorer.tokenizer.encode([s.target for s in samples], max_tokens=None)
        scores = self._scores(samples, targets)
        exact = np.array(self._exact(samples, max(len(target.ids) for target in targets)))
        table = np.array([(-score.log_prob, score.correct, score.tokens) for score in scores])

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            loss, correct, tokens = table[rows].sum(0).tolist()
            return {
                "exact_match": float(exact[rows].mean()),
                "loss": loss / tokens,
                "accuracy": correct / tokens,
            }

        values = metrics(np.arange(len(samples)))
        intervals = bootstrap_samples(metrics, len(samples), self.seed)
        return Result({**values, "samples": len(samples)}, {"intervals": intervals})

    def _exact(self, samples: Sequence[TextToText], longest: int) -> list[bool]:
        """Return whether the text that is generated for each sample is its target."""
        task = Generation(
            self.checkpoint,
            self.session,
            self.scorer.tokenizer,
            max_new_tokens=self.max_new_tokens or min(longest, MAX_NEW_TOKENS),
            num_beams=self.num_beams,
        )
        records = (TextExample(s.source, location=s.location) for s in samples)
        return [
            added["generated"].strip() == sample.target.strip()
            for sample, (_, added) in zip(samples, task.stream(records), strict=True)
        ]

    def _scores(
        self, samples: Sequence[TextToText], targets: "Sequence[Encoded]"
    ) -> list[TextScore]:
        sources = self.scorer.tokenizer.encode(
            [s.source for s in samples], max_tokens=self.scorer.max_tokens, offsets=False
        )
        return self.scorer.score_rows(self._rows(sources, targets), len(samples))

    def _rows(
        self, sources: "Sequence[Encoded]", targets: "Sequence[Encoded]"
    ) -> Iterator[ScoredRow]:
        import numpy as np

        config: Any = self.checkpoint.config
        for text, (source, target) in enumerate(zip(sources, targets, strict=True)):
            labels = np.array(target.ids, np.int64)
            ids = np.concatenate([[config.decoder_start_token_id], labels[:-1]])
            yield ScoredRow(ids, (), np.arange(len(ids)), labels, text, source.ids)
