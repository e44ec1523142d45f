"""Base class of classifiers that read long texts in windows."""

from typing import TYPE_CHECKING, Any

from zoo.inference.processing.windows import TextWindows
from zoo.inference.task import BatchTask, EncodedExample
from zoo.overrides import override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text


class WindowedTask(BatchTask):
    """A classifier of texts or tokens, which may read a long text in windows.

    With ``doc_stride``, texts longer than ``max_tokens`` are split into windows that share this
    number of tokens, in place of being truncated; see ``TextWindows``.
    """

    def __init__(self, *args: Any, doc_stride: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.windows: TextWindows | None = None
        if doc_stride is not None and self.max_tokens is not None:  # else any text is one window
            self.windows = TextWindows.of(self.checkpoint.family, self.max_tokens, doc_stride)

    @override
    def check(self, item: EncodedExample) -> None:
        if self.windows is not None:
            self.windows.require_room(item.encoded, item.record.location)

    @override
    def split(self, item: EncodedExample) -> list[EncodedExample]:
        if self.windows is None:
            return [item]
        return [item._replace(encoded=window) for window in self.windows.split(item.encoded)]

    @override
    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        # windows are cut later
        if self.windows is None:
            return super().encode(texts)
        return self.tokenizer.encode(texts, max_tokens=None)
