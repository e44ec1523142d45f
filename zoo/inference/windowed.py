"""Base class of tasks that read long texts in windows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.processing.windows import (
    DOC_STRIDE,
    TextWindows,
    WindowPooling,
    require_window_options,
)
from zoo.inference.task import BatchTask, EncodedExample, texts_of
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text


class WindowedTask(BatchTask):
    """A task that may read a long text in windows.

    With ``doc_stride``, texts longer than ``max_tokens`` are split into windows that share this
    number of tokens, in place of being truncated; see ``TextWindows``. ``window_pooling`` is what
    becomes of several windows: their ``mean``, their ``max`` of each number, or the ``first``
    window only, which leaves the rest of the text out.
    """

    # How windows are pooled by default.
    default_pooling: ClassVar[WindowPooling] = "mean"
    # Whether the command that runs the task has the option ``--doc-stride``.
    offers_windows = True

    def __init__(
        self,
        *args: Any,
        doc_stride: int | None = None,
        window_pooling: WindowPooling | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        require_window_options(doc_stride, window_pooling)
        self.window_pooling = window_pooling or self.default_pooling
        self.windows: TextWindows | None = None
        if doc_stride is not None and self.max_tokens is not None:  # else any text is one window
            self.windows = TextWindows.of(self.checkpoint.family, self.max_tokens, doc_stride)

    @property
    @override
    def cut_remedy(self) -> str:
        if not self.offers_windows or self.max_tokens is None or self.windows is not None:
            return ""
        return f"--doc-stride {min(self.max_tokens // 4, DOC_STRIDE)} reads them whole"

    @override
    def check(self, item: EncodedExample) -> None:
        if self.windows is not None:
            for text in texts_of(item.encoded):
                self.windows.require_room(text, item.record.location)

    @override
    def split(self, item: EncodedExample) -> list[EncodedExample]:
        rows = []
        for text in texts_of(item.encoded):
            for window in self.split_text(text):
                rows.append(item.with_tokens(window))
        return rows

    def split_text(self, encoded: "Encoded") -> "Sequence[Encoded]":
        """Return the windows of a text or a pair that the model reads."""
        if self.windows is None:
            return [encoded]
        windows = self.windows.split(encoded)
        if self.window_pooling == "first":
            return [next(windows)]
        return list(windows)

    @override
    def truncated(self, item: EncodedExample) -> int:
        if self.windows is None:
            return super().truncated(item)
        return sum(self.truncated_tokens(text) for text in texts_of(item.encoded))

    def truncated_tokens(self, encoded: "Encoded") -> int:
        """Return the number of tokens of a text that the model does not read."""
        if self.windows is None or self.window_pooling != "first":
            return encoded.truncated
        return len(encoded.ids) - len(next(self.windows.split(encoded)).ids)

    @override
    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        # windows are cut later
        if self.windows is None:
            return super().encode(texts)
        return self.tokenizer.encode(texts, max_tokens=None)

    def pool_logits(
        self, rows: "Sequence[NDArray[np.floating[Any]]]"
    ) -> "NDArray[np.floating[Any]]":
        """Return the logits of a text, (labels,), from those of its windows."""
        import numpy as np

        if self.window_pooling == "max":
            largest: NDArray[np.floating[Any]] = np.max(rows, axis=0)
            return largest
        return sum(rows[1:], rows[0]) / len(rows)
