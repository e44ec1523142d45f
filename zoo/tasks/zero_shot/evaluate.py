"""Accuracy of zero-shot classification, over templates and words of labels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.windows import WindowPooling
from zoo.overrides import override
from zoo.tasks.prompt.template import read_label_words
from zoo.tasks.prompt.varied import Factor, VariedEvaluation, several
from zoo.tasks.zero_shot import TEMPLATE
from zoo.tasks.zero_shot.predict import ZeroShot, entailment_id

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference.task import Task


class ZeroShotEvaluation(VariedEvaluation):
    """Accuracy of the most probable label; the labels are the data's, or their words."""

    name: ClassVar[str] = "zero-shot"

    def __init__(
        self,
        *args: Any,
        template: str | Sequence[str] = (),
        label_words: str | Sequence[str] = (),
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: WindowPooling | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if self.columns.pair is not None:
            raise UsageError(f"{self.name} classifies single texts", "leave out --pair")
        self.templates = several(template) or [TEMPLATE]
        self.words = [read_label_words(value) for value in several(label_words)]
        self.reading: dict[str, Any] = {
            "max_tokens": max_seq_len,
            "doc_stride": doc_stride,
            "window_pooling": window_pooling,
        }
        self._names: dict[str, str] = {}  # word -> label, of the task that runs

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        ZeroShot.require_head(checkpoint)
        entailment_id(checkpoint)

    @override
    def factors(self, labels: Sequence[str]) -> list[Factor]:
        return [Factor("template", tuple(self.templates)), self.word_factor(labels)]

    @override
    def task_of(self, levels: Sequence[int]) -> "Task":
        template, words = levels
        self._names = {word: label for label, word in self.words[words].items()}
        return ZeroShot(
            self.checkpoint,
            self.session,
            candidate_labels=list(self._names),
            hypothesis_template=self.templates[template],
            **self.reading,
        )

    @override
    def prediction_of(self, added: Mapping[str, Any]) -> str | None:
        return self._names[added["labels"][0]]
