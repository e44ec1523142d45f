"""The base class of probing tasks, and the samples that they read."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from zoo.data.readers.labelled import text_hash
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.probing.settings import Pooling


@dataclass(frozen=True)
class ProbeColumns:
    """Columns of the data, as the user names them; ``None`` for the defaults of the task."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class ProbedExample:
    """A label, and what a probe predicts it from.

    Attributes:
        label: name of the class.
        spans: indices of the spans of the text whose vectors the probe reads, one after another.
        control_type: what has the same random label wherever it occurs, in the control task.
        location: file and line, for messages.
    """

    label: str
    spans: tuple[int, ...]
    control_type: str
    location: str


@dataclass(frozen=True, slots=True)
class ProbedText:
    """A text, the parts of it whose vectors are read, and its labelled examples.

    Attributes:
        text: the text that the model reads.
        examples: its labels.
        location: file and line, for messages.
        pair: second text of a pair, or ``None``.
        words: the words that spaces join to ``text``; empty if the whole text has one vector.
        spans: ranges of words, each with its first word and the one after the last.
        tokens: positions of the tokens that have a vector each, in place of words.
    """

    text: str
    examples: tuple[ProbedExample, ...]
    location: str
    pair: str | None = None
    words: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    tokens: tuple[int, ...] = ()

    @property
    def hash(self) -> float:
        """Hash that splits data; equal texts are on one side."""
        return text_hash(self.text, self.pair or "")

    @property
    def vector_count(self) -> int:
        """The number of vectors of each layer: of the tokens, of the spans, or of the text."""
        if self.tokens:
            return len(self.tokens)
        return len(self.spans) if self.words else 1


class ProbeTask(ABC):
    """What probes predict: a reader of labelled texts, and how tokens become vectors.

    Attributes:
        name: name on the command line.
        summary: one line for help.
        default_pooling: how the vectors of the tokens of a text, a word or a span become one.
        control: one line that says what has a random label in the control task.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    default_pooling: ClassVar[Pooling]
    control: ClassVar[str]

    @abstractmethod
    def read(
        self, paths: Sequence[str], columns: ProbeColumns, problems: RowProblems
    ) -> list[ProbedText]:
        """Return the texts of files.

        Args:
            paths: files, directories and patterns.
            columns: names of columns.
            problems: collects the rows that cannot be used.

        Raises:
            UsageError: a column does not exist, or the files have no texts.
        """

    def require_no_pair(self, columns: ProbeColumns) -> None:
        """Refuse a column of second texts, for tasks that read single texts."""
        if columns.pair is not None:
            raise UsageError(f"{self.name} reads single texts", "leave --pair out")
