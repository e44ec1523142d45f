"""seq2seq: the text that a model makes of a text, such as a translation or a summary."""

from typing import ClassVar

from zoo.inference.tasks.base import EncodedExample
from zoo.inference.tasks.generate import Generate


class Seq2Seq(Generate):
    """What a model with an encoder writes for a text, which is not a continuation of it.

    A result adds ``generated`` and ``stopped``, see ``Generate``. A text that is longer than the
    model's limit is cut, as for tasks that only read.
    """

    name: ClassVar[str] = "seq2seq"
    side: ClassVar[str] = "right"

    def check(self, item: EncodedExample) -> None:
        """See ``Task``."""
        self._prompt(item)
