"""Windows over long contexts of questions, and over long texts of classifiers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.overrides import override
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WINDOW_TOKENS = 384  # default length of windows, as in Devlin et al. 2018 (arXiv:1810.04805)
DOC_STRIDE = 128  # default overlap of windows
WindowPooling = Literal["mean", "max", "first"]
WINDOW_POOLINGS: tuple[WindowPooling, ...] = ("mean", "max", "first")


@dataclass(frozen=True)
class WindowSettings:
    """How evaluations read long texts.

    Attributes:
        max_tokens: length that texts are truncated to, or of windows; by default the model's limit.
        doc_stride: number of tokens that windows share; ``None`` to truncate texts.
        window_pooling: how windows are pooled; the default is the task's.
    """

    max_tokens: int | None = None
    doc_stride: int | None = None
    window_pooling: WindowPooling | None = None

    def options(self, default_pooling: WindowPooling | None = None) -> dict[str, Any]:
        """Return the arguments of a task; ``default_pooling`` is for texts in windows."""
        window_pooling = self.window_pooling
        if window_pooling is None and self.doc_stride is not None:
            window_pooling = default_pooling
        return {
            "max_tokens": self.max_tokens,
            "doc_stride": self.doc_stride,
            "window_pooling": window_pooling,
        }


NO_WINDOWS = WindowSettings()


class Window(Encoded):
    """A question with a part of its context; it has ``ids`` and ``type_ids``."""

    def __init__(self, pair: Encoded, context: range, part: range) -> None:
        self.pair = pair
        self.part = part
        self.first = context.start
        self._last = context.stop
        self.ids = self.select(pair.ids)
        self.truncated = 0

    @cached_property
    @override
    def type_ids(self) -> list[int]:
        return self.select(self.pair.type_ids)

    def no_answer_position(self, no_answer_id: int | None) -> int | None:
        """Return the position of a token that stands for no answer, if it is the first or last."""
        if not self.ids:
            return None
        for position in (0, len(self.ids) - 1):
            if self.ids[position] == no_answer_id:
                return position
        return None

    def answer_mask(self, no_answer_id: int | None) -> "NDArray[np.bool_]":
        """Return which tokens may be in an answer or stand for none, (tokens,), bool."""
        import numpy as np

        is_allowed: NDArray[np.bool_] = np.zeros(len(self.ids), dtype=bool)
        is_allowed[self.first : self.first + len(self.part)] = True
        position = self.no_answer_position(no_answer_id)
        if position is not None:
            is_allowed[position] = True
        return is_allowed

    def select(self, values: list[int]) -> list[int]:
        """Return the values of the window's tokens among the values of all tokens of the pair."""
        part = values[self.part.start : self.part.stop]
        return [*values[: self.first], *part, *values[self._last :]]


@dataclass(frozen=True)
class ContextWindows:
    """Windows over the contexts of questions, each with the whole question.

    They are the windows of the question-answering pipeline of transformers 4
    (``pipelines/question_answering.py``).
    """

    max_tokens: int  # largest number of tokens of a window
    stride: int  # number of tokens that consecutive windows share
    # Whether the context is before the question, as transformers has it for tokenizers that pad on
    # the left.
    context_first: bool = False
    # Names of the parts in messages.
    fixed_part: ClassVar[str] = "the question"
    split_part: ClassVar[str] = "the context"

    @classmethod
    def of(cls, family: Family, max_tokens: int, doc_stride: int | None) -> Self:
        """Return the windows for models of a family."""
        stride = doc_stride
        if stride is None:
            stride = min(max_tokens // 2, DOC_STRIDE)
        if stride < 0:
            raise UsageError(f"windows cannot share {stride} tokens", "give --doc-stride 0 or more")
        if stride >= max_tokens:
            raise UsageError(
                f"windows of {max_tokens} tokens cannot share {stride}", "lower --doc-stride"
            )
        return cls(max_tokens, stride, family.padding_side == "left")

    def texts(self, question: str, context: str) -> tuple[str, str]:
        """Return question and context in the order in which they are tokenized."""
        return (context, question) if self.context_first else (question, context)

    def context(self, pair: Encoded) -> range:
        """Return the positions of the tokens of the context in a pair."""
        numbers = pair.sequence_ids
        number = 0 if self.context_first else 1
        start = numbers.index(number) if number in numbers else len(numbers)
        return range(start, start + numbers.count(number))

    def split(self, pair: Encoded) -> Iterator[Window]:
        """Yield the windows over a context; one, if all fits into one."""
        context = self.context(pair)
        width = self.max_tokens - (len(pair.ids) - len(context))
        stop = max(context.stop, context.start + 1)
        step = max(width - self.stride, 1)
        for start in range(context.start, stop, step):
            stop = min(start + width, context.stop)
            yield Window(pair, context, range(start, stop))
            if stop == context.stop:
                return

    def require_room(self, pair: Encoded, location: str) -> None:
        """Check that what is in each window leaves room for the rest of its text."""
        tokens = len(pair.ids)
        fixed = tokens - len(self.context(pair))
        if tokens > self.max_tokens and fixed + self.stride >= self.max_tokens:
            raise UsageError(
                f"{location}: {self.fixed_part} has {fixed} tokens with special ones, and a window "
                f"of {self.max_tokens} that shares {self.stride} with the next has no room for "
                f"{self.split_part}",
                f"shorten {self.fixed_part}, or lower --doc-stride",
            )


@dataclass(frozen=True)
class TextWindows(ContextWindows):
    """Windows over long texts, with the special tokens and, for pairs, the whole first text.

    Each window also has the first ``prefix`` tokens, which are those of a prompt.
    """

    prefix: int = 0  # Number of tokens of a prompt, with the special tokens before it.
    fixed_part: ClassVar[str] = "the text in each window"
    split_part: ClassVar[str] = "the long text"

    @override
    def context(self, pair: Encoded) -> range:
        """Return the positions of the tokens of the text, or of the one of a pair that is split."""
        numbers = pair.sequence_ids
        present = [number for number in numbers if number is not None]
        if not present:
            return range(len(numbers), len(numbers))
        number = min(present) if self.context_first else max(present)
        start = numbers.index(number)
        stop = start + numbers.count(number)
        return range(min(max(start, self.prefix), stop), stop)


def select_windows(encoded: Encoded, windows: Sequence[Window]) -> "NDArray[np.int64]":
    """Return the window with most context of each token, (tokens,); -1 at special tokens.

    In this window, the smaller number of tokens of the text before and after the token is largest,
    as in run_squad.py of the code released with Devlin et al. 2018; of several, it is the first.
    """
    import numpy as np

    selected = np.full(len(encoded.ids), -1)
    largest_context = np.full(len(encoded.ids), -1)
    for number, window in enumerate(windows):
        size = len(window.part)
        part = slice(window.part.start, window.part.stop)
        context = np.minimum(np.arange(size), np.arange(size)[::-1])
        is_larger = context > largest_context[part]
        selected[part][is_larger] = number
        largest_context[part][is_larger] = context[is_larger]
    return selected


def join_windows(
    encoded: Encoded, windows: Sequence[Window], values: "Sequence[NDArray[np.floating[Any]]]"
) -> "NDArray[np.floating[Any]]":
    """Return the values of all tokens, (tokens, ...), each from a window of ``select_windows``.

    ``values`` are (tokens, ...) of each window, with padding at the end. The result has 0 at
    special tokens.
    """
    import numpy as np

    joined: NDArray[np.floating[Any]] = np.zeros(
        (len(encoded.ids), *values[0].shape[1:]), values[0].dtype
    )
    selected = select_windows(encoded, windows)
    for number, (window, rows) in enumerate(zip(windows, values, strict=True)):
        part = slice(window.part.start, window.part.stop)
        belongs = selected[part] == number
        joined[part][belongs] = rows[window.first : window.first + len(window.part)][belongs]
    return joined


def join_token_vectors(
    encoded: Encoded, windows: Sequence[Window], values: "Sequence[NDArray[np.floating[Any]]]"
) -> "NDArray[np.floating[Any]]":
    """Return the vectors of all tokens, (tokens, width), each from the first window that has it.

    Later windows read tokens that they share with the previous one as context only, which Günther
    et al. 2024 (arXiv:2409.04701) call long late chunking. The special tokens and the prompt at
    the beginning are the first window's, and those at the end the last one's. ``values`` are
    (tokens, width) of each window, without padding.
    """
    import numpy as np

    first_window = windows[0]
    last_window = windows[-1]
    joined: NDArray[np.floating[Any]] = np.empty(
        (len(encoded.ids), values[0].shape[1]), values[0].dtype
    )
    for window, rows in zip(reversed(windows), reversed(values), strict=True):
        part = slice(window.part.start, window.part.stop)
        joined[part] = rows[window.first : window.first + len(window.part)]
    joined[: first_window.first] = values[0][: first_window.first]
    end = last_window.part.stop
    joined[end:] = values[-1][last_window.first + len(last_window.part) :]
    return joined


def window_spans(windows: Sequence[Window], prompt_length: int = 0) -> list[list[int]]:
    """Return the first character of the text in each window, and the one after its last.

    Args:
        windows: windows of a text that was encoded with offsets.
        prompt_length: number of characters before the text, which do not count.
    """
    spans = []
    for window in windows:
        offsets = window.pair.offsets[window.part.start : window.part.stop]
        start = min((start for start, _ in offsets), default=prompt_length)
        end = max((end for _, end in offsets), default=prompt_length)
        spans.append([max(start - prompt_length, 0), max(end - prompt_length, 0)])
    return spans


def pool_scores(
    scores: "NDArray[np.floating[Any]]", starts: "NDArray[np.integer[Any]]", pooling: WindowPooling
) -> "NDArray[np.floating[Any]]":
    """Return the scores of texts, (texts,), from the scores of their windows.

    The best window's is MaxP, and the first one's FirstP (Dai and Callan 2019, arXiv:1905.09217,
    section 3).

    Args:
        scores: scores of all windows, those of a text one after another, (windows,).
        starts: number of the first window of each text, (texts,).
        pooling: what the score of a text is.
    """
    import numpy as np

    if pooling == "first":
        first_scores: NDArray[np.floating[Any]] = scores[starts]
        return first_scores
    if pooling == "max":
        best: NDArray[np.floating[Any]] = np.maximum.reduceat(scores, starts)
        return best
    counts = np.diff(starts, append=len(scores))
    means: NDArray[np.floating[Any]] = np.add.reduceat(scores, starts) / counts
    return means


def require_window_options(doc_stride: int | None, window_pooling: str | None) -> None:
    """Check how windows are pooled, and that there are any; raises ``UsageError``."""
    if window_pooling is None:
        return
    if window_pooling not in WINDOW_POOLINGS:
        raise UsageError(
            f"windows are not pooled by {window_pooling!r:.100}",
            f"give {', '.join(WINDOW_POOLINGS)}",
        )
    if doc_stride is None:
        raise UsageError(
            "--window-pooling is for texts that are read in windows", "add --doc-stride N"
        )
