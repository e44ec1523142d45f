"""The task seq2seq: output sequences of encoder-decoder models, such as translations."""

from typing import ClassVar

from zoo.inference.tasks.base import EncodedExample
from zoo.inference.tasks.generate import Generate


class Seq2Seq(Generate):
    """Output sequences of an encoder-decoder model.

    Results have the keys of ``Generate``. Source texts that are too long are truncated.
    """

    name: ClassVar[str] = "seq2seq"
    side: ClassVar[str] = "right"

    def check(self, item: EncodedExample) -> None:
        """Refuse an empty text where there is no beginning-of-sequence token."""
        self._prompt(item)
