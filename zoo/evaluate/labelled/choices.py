"""Evaluation of multiple choice: accuracy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.choices import ChoiceColumns, ChoiceSample, read_choices
from zoo.errors import UsageError
from zoo.evaluate.base import Evaluation, Result
from zoo.evaluate.metrics import bootstrap_samples
from zoo.inference.processing.batching import MAX_BATCH_TOKENS, collate, plan_batches
from zoo.inference.processing.records import TextExample
from zoo.inference.tasks.checks import max_length, require_finite, token_limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

AXES = "batch choices"  # of the output with the scores
CHUNK = 256  # questions that are tokenized together


class MultipleChoice(Evaluation):
    """Fraction of the questions with the correct choice.

    Args:
        *args: see ``Evaluation``; ``limit`` is the number of questions.
        text: column of the context, see ``zoo.data.readers.choices``.
        pair: column of the question.
        label: column of the correct choice.
        choices: columns of the choices.
        seq_len: length that texts are truncated to; by default the model's limit.
        seed: seed of the intervals.
        **options: see ``Evaluation``.
    """

    name: ClassVar[str] = "multiple-choice"

    def __init__(
        self,
        *args: Any,
        text: str = ChoiceColumns.text,
        pair: str | None = None,
        label: str = ChoiceColumns.label,
        choices: tuple[str, ...] = (),
        seq_len: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        from zoo.checkpoint import load_text_tokenizer

        super().__init__(*args, **options)
        self.columns, self.seed = ChoiceColumns(text, pair, label, choices), seed
        self.tokenizer = load_text_tokenizer(self.checkpoint)
        self.max_tokens = max_length(seq_len, token_limits(self.checkpoint))
        outputs = self.checkpoint.head.outputs
        self.output = next(name for name, axes in outputs.items() if axes == AXES)

    @classmethod
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        """See ``Evaluation``."""
        if AXES not in checkpoint.head.outputs.values():
            raise UsageError(
                f"{checkpoint.path} has the head {checkpoint.head_name}, and {cls.name} needs one "
                "that scores choices",
                f"fine-tune it with --task {cls.name}",
            )

    def evaluate(self, files: Sequence[Path]) -> Result:
        """See ``Evaluation``."""
        import numpy as np

        samples = read_choices(files, self.columns)[: self.limit]
        chunks = [samples[start : start + CHUNK] for start in range(0, len(samples), CHUNK)]
        hits = np.array([hit for chunk in chunks for hit in self._hits(chunk)])

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            return {"accuracy": float(hits[rows].mean())}

        return Result(
            {**metrics(np.arange(len(hits))), "questions": len(hits)},
            {"intervals": bootstrap_samples(metrics, len(hits), self.seed)},
        )

    def _hits(self, samples: Sequence[ChoiceSample]) -> list[bool]:
        """Return whether the choice with the highest score is the correct one."""
        import numpy as np

        scores = self._scores(samples)
        ends = np.cumsum([len(sample.choices) for sample in samples])
        parts = np.split(scores, ends[:-1])
        return [
            int(part.argmax()) == sample.label for part, sample in zip(parts, samples, strict=True)
        ]

    def _scores(self, samples: Sequence[ChoiceSample]) -> "NDArray[np.floating[Any]]":
        """Return the score of each choice of each question, (choices,).

        Scores do not depend on each other, so that batches have texts of similar length, each as
        the one choice of a question.
        """
        import numpy as np

        rows = [(sample, pair) for sample in samples for pair in sample.pairs]
        encoded = self.tokenizer.encode(
            [pair for _, pair in rows], max_tokens=self.max_tokens, offsets=False
        )
        scores = np.zeros(len(rows))
        for indices in plan_batches([len(text.ids) for text in encoded], MAX_BATCH_TOKENS):
            names = list(self.session.inputs)
            batch = collate([encoded[k] for k in indices], names, self.tokenizer.pad_id)
            inputs = {name: array[:, None] for name, array in batch.inputs.items()}
            values = self.session.run(inputs, (self.output,))[self.output]  # (texts, 1)
            records = [TextExample("", location=rows[k][0].location) for k in indices]
            require_finite(values, batch.mask, records)
            scores[indices] = values[:, 0]
        return scores
