"""The base class of losses of embeddings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec
import numpy as np

from zoo.data.readers.labelled import label_number
from zoo.errors import UsageError
from zoo.finetuning.embeddings.data import TextGroup
from zoo.finetuning.embeddings.measures import Measure
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch

# What the column of labels has: nothing, a score or a class of a pair, or a teacher's scores of a
# text and negatives, or their margins.
LabelContent = Literal["none", "scores", "classes", "teacher"]
# How many columns of negatives there are.
Negatives = Literal["none", "one", "some", "any"]


@dataclass(frozen=True, kw_only=True)
class EmbeddingLoss(ABC):
    """A loss of embeddings.

    A subclass is a frozen dataclass, whose fields are its settings: options of the task, such as
    ``task_args.margin``. ``__post_init__`` may raise ``ValueError``. What it reads of a table, the
    checks of columns and the metrics follow from its class variables.

    Attributes:
        name: value of the option ``loss``.
        summary: what the loss is, in a few words, for help.
        label: content of the column of labels: ``none``; ``scores`` or ``classes`` of pairs; or
            ``teacher``, a teacher's scores or margins of a text and its negatives.
        negatives: number of columns of negatives: ``none``, ``one``, ``some`` (at least one) or
            ``any``.
        measure: the metrics of an evaluation on the loss's own columns.
        compares_samples: whether the loss of a row depends on other rows of its micro-batch.
        separates_texts: whether rows with the same text have to be in different batches, because
            each text is a negative of the others.
        compares_any: whether it only compares texts by ``EmbeddedBatch.score_matrix`` and
            ``margins``, which every representation has; others need dense vectors.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    label: ClassVar[LabelContent] = "none"
    negatives: ClassVar[Negatives] = "any"
    measure: ClassVar[Measure]
    compares_samples: ClassVar[bool] = False
    separates_texts: ClassVar[bool] = False
    compares_any: ClassVar[bool] = False

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """Return the names of the settings."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the loss with settings.

        Raises:
            msgspec.ValidationError, ValueError: a setting has a wrong type or value.
        """
        return msgspec.convert(dict(settings), cls)

    def check_columns(self, table: TableConfig) -> None:
        """Check that the settings name the columns that the loss needs, and no others.

        Raises:
            UsageError: a column is missing, or is not read.
        """
        reason = self._column_problem(table)
        if reason is not None:
            raise UsageError(f"the loss {self.name} {reason}")

    def _column_problem(self, table: TableConfig) -> str | None:
        has_label = table.label is not None
        if self.label in ("scores", "classes") and not has_label:
            return "needs scores or classes: name their column with --label"
        if self.label == "teacher" and not has_label:
            return "needs the scores of a teacher: name their column with --label"
        if self.negatives == "some" and not table.negatives:
            return "needs negatives: name their columns with --negative"
        if self.label == "none" and has_label:
            return "takes no labels: leave out --label"
        if self.label != "classes" and table.labels is not None:
            return "has no classes: leave out data.labels"
        if self.negatives == "none" and table.negatives:
            return "takes no negatives: leave out --negative"
        if self.negatives == "one" and len(table.negatives) != 1:
            return "needs one negative: name its column with --negative"
        if self.label != "none" and table.eval_score is not None:
            return "is evaluated on its own columns: leave out data.eval_score"
        if table.eval_score is not None and not table.eval:
            return "is evaluated on scores of other files: name them with --eval"
        return None

    def target(self, sample: TextGroup) -> Any:
        """Return the label of a row as a number or an array; by default a score, float32.

        Raises:
            RowError: the label is not what the loss takes.
        """
        return np.float32(label_number(sample.label, sample.location))

    def values_per_row(self, table: TableConfig) -> int:
        """Return the number of values that a row adds to the sum; by default one."""
        return 1

    @abstractmethod
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        """Return the sum over the rows of a batch, a scalar with a gradient, float32.

        It is divided by the number of rows of the step, over all micro-batches and processes, times
        ``values_per_row``.
        """
