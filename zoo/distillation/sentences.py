"""The loss term over sentence embeddings, for models with different tokenizers.

A student's rows are cut into their documents. The embedding of one is the mean of the last hidden
states of its tokens, special ones included. A teacher with another tokenizer reads the same
documents: the student's tokens are decoded, and the text is encoded by the teacher's tokenizer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zoo.distillation.losses import terms
from zoo.distillation.losses.comparisons import (
    Comparison,
    Layers,
    ModelView,
    Side,
    linear_map,
)
from zoo.distillation.losses.token_masks import first_tokens, real_tokens
from zoo.distillation.teachers.teacher import PREFIX
from zoo.objectives.base import Batch, TrainingObjective
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.tokenizers import TextTokenizer

IDS, MASK = "input_ids", "attention_mask"


class SentenceError(Comparison):
    """Squared differences of the mean last hidden states of texts.

    As the loss of Reimers and Gurevych 2020, arXiv:2004.09813, section 2, whose student and teacher
    have tokenizers of their own, too.
    """

    fields = ("reduction", "projection")

    def _pairs(self) -> list[tuple[int, int]]:
        return []

    def layers(self, side: Side) -> Layers:
        """See ``Comparison``."""
        return {"hidden": {-1}}

    def projection(self) -> nn.Module | None:
        """See ``Comparison``."""
        return linear_map(self.term, self.student, self.teachers[0])

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: texts, or elements of their embeddings."""
        texts = int(first_tokens(batch.tensors).sum())
        return texts * (self.teachers[0].hidden_size if self.term.reduction == "elements" else 1)

    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """See ``Comparison``: of several teachers, to the mean of their embeddings."""
        vectors = student.text_embeddings()
        targets = [view.text_embeddings() for view in teachers]
        mapped = vectors if projection is None else projection(vectors)
        return terms.squared_error(mapped.float(), sum(targets[1:], targets[0]) / len(targets))


@dataclass(frozen=True)
class TextAligner:
    """The texts of a student's batch as tokens of a teacher.

    Attributes:
        student: tokenizer of the student.
        teacher: tokenizer of the teacher.
        max_tokens: number of tokens that texts are truncated to; ``None`` for no limit.
    """

    student: TextTokenizer
    teacher: TextTokenizer
    max_tokens: int | None

    def texts(self, tensors: Mapping[str, Tensor], objective: TrainingObjective) -> list[str]:
        """Return the texts of a batch, row by row.

        Args:
            tensors: tensors of the student's batch.
            objective: objective of the student; masked tokens are put back.
        """
        ids = tensors[IDS].clone()
        if isinstance(objective, MaskedLanguageModelling):
            ids.view(-1)[tensors["label_positions"]] = tensors["labels"]
        real = real_tokens(tensors)
        sizes = first_tokens(tensors)[real].cumsum(0).bincount()[1:].tolist()
        return [self.student.decode(part.tolist()) for part in torch.split(ids[real], sizes)]

    def teacher_tensors(
        self, tensors: Mapping[str, Tensor], objective: TrainingObjective
    ) -> dict[str, Tensor]:
        """Return what the teacher reads: a padded row for each text of a batch.

        Args:
            tensors: see ``texts``.
            objective: see ``texts``.
        """
        encoded = self.teacher.encode(
            self.texts(tensors, objective), max_tokens=self.max_tokens, offsets=False
        )
        # a text without tokens, such as one of white space, is one token of padding
        rows = [torch.tensor(text.ids or [self.teacher.pad_id]) for text in encoded]
        ids = nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=float(self.teacher.pad_id)
        )
        mask = torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows])
        return {f"{PREFIX}{IDS}": ids, f"{PREFIX}{MASK}": mask.long()}
