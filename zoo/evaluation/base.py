"""Interface of evaluations: a model and files in, numbers out."""

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import DataReview, Reviewed, count_labels
from zoo.errors import UsageError
from zoo.inference.scoring import Scorer, TextScore, make_scorer, require_scorer, scorer_type
from zoo.inference.task_warnings import collect_cut_texts
from zoo.io.progress import progress
from zoo.metrics import MetricInput
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Need, Session
    from zoo.inference.processing.records import TextExample
    from zoo.inference.task import Task
    from zoo.tokenizers import Encoded

LOG = logging.getLogger("zoo")
Item = TypeVar("Item")
Output = TypeVar("Output")
TEXTS_AT_ONCE = 1024  # texts that are tokenized together
SHOWN_TOKENS = 5  # tokens of a text that predictions show


# The row of a sample that ``zoo eval --predictions`` writes: text, label, prediction, and what
# tasks add.
Prediction = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """Result of an evaluation.

    Attributes:
        metrics: name -> value over all data.
        details: name -> further values, such as the metrics of each part.
    """

    metrics: Mapping[str, float]
    details: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """Return the metrics and their intervals as a table, for notebooks."""
        from zoo.report.cells import table_cell

        intervals = self.details.get("intervals", {})
        rows = []
        for name, value in self.metrics.items():
            row: list[object] = [name, value]
            if intervals:
                row.append(" to ".join(f"{end:.4f}" for end in intervals.get(name, ())))
            rows.append(row)
        header = ["metric", "value", "95 % interval"]
        return table_cell("", header if intervals else header[:2], rows)


class RestartableIterable(Iterable[Item]):
    """The first items of files, which every iteration reads again instead of keeping them."""

    def __init__(self, read: Callable[[], Iterable[Item]], limit: int | None) -> None:
        self._read = read
        self._limit = limit

    def __iter__(self) -> Iterator[Item]:
        return itertools.islice(self._read(), self._limit)


class Samples(Iterable[Item]):
    """The first samples of files, which every iteration reads again instead of keeping them.

    The first iteration, which has to be complete, reviews the samples and counts the rows that
    cannot be used; at its end, it refuses these rows unless ``skip`` is set. ``notes`` is what
    users should know about the data.

    Args:
        read: reads the files, and adds the rows that cannot be used to the problems.
        review: returns what is reviewed of a sample.
        limit: number of samples to use; ``None`` for all.
        skip: leave out rows that cannot be used, not refuse them.
        silent: log nothing about the data.
    """

    def __init__(
        self,
        read: Callable[[RowProblems], Iterable[Item]],
        review: Callable[[Item], Reviewed],
        limit: int | None,
        *,
        skip: bool,
        silent: bool = False,
    ) -> None:
        self._read = read
        self._review = review
        self._limit = limit
        self._skip = skip
        self.skipped = 0
        self.notes = list[str]()
        self._is_reviewed = False
        self._silent = silent

    def __iter__(self) -> Iterator[Item]:
        """Read the files; ``InvalidRows`` if rows cannot be used and are not skipped."""
        # This is a generator, so that the first item decides: a generator expression calls
        # ``__iter__`` when it is made.
        if self._is_reviewed:
            yield from self._read_again()
        else:
            yield from self._review_samples()

    def _read_again(self) -> Iterator[Item]:
        return itertools.islice(self._read(RowProblems(skip=True)), self._limit)

    def _review_samples(self) -> Iterator[Item]:
        problems = RowProblems(skip=self._skip)
        review = DataReview()
        with progress("reading", unit="rows") as advance:
            for item in itertools.islice(self._read(problems), self._limit):
                sample: Any = item
                review.add(self._review(item), sample.location)
                yield item
                advance(1)
        problems.require_none()
        self._is_reviewed = True
        self.skipped = problems.count
        self.notes = review.warnings("samples to evaluate", self._locate)
        if self._silent:
            return
        if review.labels:
            LOG.info("samples of each label: %s", count_labels(review.labels))
        if problems.count:
            example = problems.first_errors[0].what
            LOG.warning("warning: %s rows are skipped, such as %s", f"{problems.count:,}", example)
        for line in self.notes:
            LOG.warning("warning: %s", line)

    def _locate(self, numbers: Collection[int]) -> dict[int, str]:
        """Return the locations of samples by their numbers."""
        samples: Iterable[Any] = itertools.islice(self._read_again(), max(numbers) + 1)
        locations = {}
        for number, sample in enumerate(samples):
            if number in numbers:
                locations[number] = sample.location
        return locations


class Evaluation(ABC):
    """An evaluation of a model.

    Args:
        checkpoint: the checkpoint.
        session: the model.
        limit: number of examples to use, the first of the files; ``None`` for all.
        skip_invalid: leave out and count rows of tables that cannot be used, not refuse them.
        **options: options of the evaluation.

    Raises:
        UsageError: the head of the model does not support the evaluation.
    """

    name: ClassVar[str]  # value of ``--task``
    needs: "ClassVar[tuple[Need, ...]]" = ()  # what not every backend has

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        *,
        limit: int | None = None,
        skip_invalid: bool = False,
    ) -> None:
        self.require_supported(checkpoint)
        self.checkpoint = checkpoint
        self.session = session
        self.limit = limit
        self.skip_invalid = skip_invalid
        # Whether to log nothing about the data, because another evaluation has logged it.
        self.silent = False
        self._samples: Samples[Any] | None = None
        self._on_prediction: Callable[[Prediction], None] | None = None

    @classmethod
    @abstractmethod
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        """Check that the head of a model supports the evaluation; raises ``UsageError``."""

    @classmethod  # noqa: B027 (optional)
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        """Check options against a checkpoint before its weights are loaded.

        Args:
            checkpoint: the checkpoint, whose head the evaluation supports.
            options: options that were given.

        Raises:
            UsageError: the model does not have what an option asks for.
        """

    @classmethod
    def split_names(
        cls, data: Sequence[Path], options: Mapping[str, Any]
    ) -> tuple[list[Path], dict[str, Any]]:
        """Return the files of paths that may name data sets, and settings by these names."""
        return list(data), {}

    @classmethod
    def metric_input(cls) -> MetricInput | None:
        """Return what the predictions are, for metrics that users select; by default ``None``."""
        return None

    @property
    def class_labels(self) -> Sequence[str]:
        """Names of the classes of labels and predictions; by default none."""
        return ()

    def warn(self, lines: Sequence[str]) -> None:
        """Log what the user should know about the data."""
        if self.silent:
            return
        for line in lines:
            LOG.warning("warning: %s", line)

    def samples(
        self, read: Callable[[RowProblems], Iterable[Item]], review: Callable[[Item], Reviewed]
    ) -> Samples[Item]:
        """Return the samples of files; see ``Samples``.

        ``read`` reads the files, and adds the rows that cannot be used; ``review`` returns what is
        reviewed of a sample.
        """
        samples = Samples(read, review, self.limit, skip=self.skip_invalid, silent=self.silent)
        self._samples = samples
        return samples

    def evaluate(
        self, files: Sequence[Path], *, on_prediction: Callable[[Prediction], None] | None = None
    ) -> Result:
        """Return the result over files.

        Its metrics have the numbers of rows that were ``skipped`` and of texts that were
        ``truncated``, if there are any.

        Args:
            files: the files.
            on_prediction: called with each sample and its prediction, in the order of the samples;
                all rows have the same keys.

        Raises:
            UsageError: a file does not suit the evaluation.
            SourceError, VerificationError: a file cannot be read, or is damaged.
            NonFiniteError: an output is NaN or infinite.
        """
        self._on_prediction = on_prediction
        with collect_cut_texts() as cut_texts:
            result = self.measure(files)
        counts = {}
        if self._samples is not None and self._samples.skipped:
            counts["skipped"] = self._samples.skipped
        if cut_texts.count:
            counts["truncated"] = cut_texts.count
        if not counts:
            return result
        return replace(result, metrics={**result.metrics, **counts})

    def stream(
        self, task: "Task", records: "Iterable[TextExample]", total: int, label: str = "evaluating"
    ) -> Iterator[Mapping[str, Any]]:
        """Yield what a task adds to each record, and show the progress.

        Args:
            task: the task.
            records: the texts.
            total: their number.
            label: name of the phase.
        """
        with task.show_progress(label, total):
            for _, added in task.stream(records):
                yield added

    def shown(self, outputs: Iterable[Output], total: int | None, unit: str) -> Iterator[Output]:
        """Yield outputs of a model, and show the progress; ``total`` may be unknown."""
        with progress("evaluating", total, unit=unit) as advance:
            for output in outputs:
                yield output
                advance(1)

    def observed(
        self,
        samples: Iterable[Item],
        outputs: Iterable[Output],
        row: Callable[[Item, Output], Prediction],
    ) -> Iterator[Output]:
        """Yield the output of each sample, and pass its ``row`` on if predictions are requested.

        Samples are read again only then; outputs are in their order.
        """
        if self._on_prediction is None:
            yield from outputs
            return
        for sample, output in zip(samples, outputs, strict=True):
            self._on_prediction(row(sample, output))
            yield output

    def emit(
        self,
        samples: Iterable[Item],
        outputs: Iterable[Output],
        row: Callable[[Item, Output], Prediction],
    ) -> None:
        """Pass on the rows of samples whose outputs are all known; see ``observed``."""
        if self._on_prediction is not None:
            for sample, output in zip(samples, outputs, strict=True):
                self._on_prediction(row(sample, output))

    @classmethod
    def mistake(cls, row: Prediction) -> float | None:
        """Return how bad a row's prediction is, by which reports sort; ``None`` if it is good.

        By default the probability of a wrong prediction: the most confident errors come first.
        """
        if row.get("correct", True):
            return None
        return float(row.get("probability") or 0.0)

    @abstractmethod
    def measure(self, files: Sequence[Path]) -> Result:
        """Return the result over files; see ``evaluate``."""


class LikelihoodEvaluation(Evaluation):
    """An evaluation of a model that predicts tokens."""

    # Scorers of the models that can be evaluated; empty for all.
    scorers: ClassVar[tuple[type[Scorer], ...]] = ()
    # Another scorer -> the name of the similar evaluation of its models.
    counterparts: ClassVar[Mapping[type[Scorer], str]] = {}

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        *,
        limit: int | None = None,
        skip_invalid: bool = False,
    ) -> None:
        super().__init__(checkpoint, session, limit=limit, skip_invalid=skip_invalid)
        self.scorer = make_scorer(checkpoint, session, self.scorers)

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        """Check the head; the error names the counterpart of the evaluation for it, if any."""
        scorer_class = scorer_type(checkpoint.head_name, checkpoint.head)
        if scorer_class is not None and scorer_class not in cls.scorers:
            counterpart = cls.counterparts.get(scorer_class)
            if counterpart is not None:
                raise UsageError(
                    f"{checkpoint.name} has the head {checkpoint.head_name}, which cannot be "
                    f"scored by {cls.name}",
                    f"--task {counterpart} is its counterpart for this head",
                )
        require_scorer(checkpoint, cls.scorers)

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        """Return the loss: the least likely texts come first."""
        loss: float | None = row.get("loss")
        return loss

    @property
    def kept_tokens(self) -> int:
        """Number of the least likely tokens of a text that predictions show."""
        if self._on_prediction is None:
            return 0
        return SHOWN_TOKENS

    def score_columns(self, score: TextScore) -> Prediction:
        """Return the columns of a text's score, with its least likely tokens."""
        least_likely = []
        for log_prob, number in score.least_likely:
            token = self.scorer.tokenizer.token(number)
            least_likely.append({"token": token, "log_prob": log_prob})
        return {
            "loss": -score.log_prob / score.tokens,
            "accuracy": score.correct / score.tokens,
            "tokens": score.tokens,
            "least_likely": least_likely,
        }

    def scored(
        self, texts: Iterable[str], scores: Iterable[tuple[int, TextScore]]
    ) -> Iterator[TextScore]:
        """Yield the scores of texts, and pass them on if predictions are requested.

        Texts are read again only then. ``scores`` has index and score of each text with tokens.
        """
        if self._on_prediction is None:
            for _, score in scores:
                yield score
            return
        numbered_texts = enumerate(texts)
        for number, score in scores:
            if score.tokens:
                # Texts without tokens have no scores.
                text = next(text for index, text in numbered_texts if index == number)
                columns = self.score_columns(score)
                self._on_prediction({"location": f"text {number + 1}", "text": text, **columns})
            yield score

    def require_short(self, text: str, encoded: "Encoded") -> None:
        """Check that a text is not longer than the model allows; raises ``UsageError``."""
        limit = self.scorer.max_tokens
        tokens = len(encoded.ids) + self.scorer.added_tokens
        if limit is not None and tokens > limit:
            raise UsageError(
                f"a text has {tokens} tokens, and the model takes {limit}: {text[:60]!r}",
                "leave it out",
            )
