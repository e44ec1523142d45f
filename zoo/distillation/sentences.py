"""Alignment by text: a student's rows are decoded, and encoded by the teacher's tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from zoo.distillation.outputs import first_tokens, real_tokens
from zoo.distillation.teachers.teacher import PREFIX
from zoo.inference.task_warnings import CutTexts
from zoo.objectives.base import TrainingObjective
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.tokenizers import TextTokenizer

IDS = "input_ids"
MASK = "attention_mask"
READ_BY_TEACHER = "for the teacher: "  # Before the number of texts that were cut.


@dataclass(frozen=True)
class TextAligner:
    """Turns the documents of a student's batch into inputs of a teacher."""

    student: TextTokenizer
    teacher: TextTokenizer
    max_tokens: int | None  # the teacher's limit; longer texts are truncated
    # The texts of all batches that this process has prepared, those of evaluations included.
    cut_texts: CutTexts = field(default_factory=CutTexts)

    def cut_lines(self) -> list[str]:
        """Return what a run says at its end about texts that were truncated."""
        return [f"{READ_BY_TEACHER}{line}" for line in self.cut_texts.lines]

    def texts(self, tensors: Mapping[str, Tensor], objective: TrainingObjective) -> list[str]:
        """Return the documents of a batch row by row, with their original tokens."""
        ids = tensors[IDS].clone()
        if isinstance(objective, MaskedLanguageModelling):
            for positions, labels in objective.token_terms.values():
                ids.view(-1)[tensors[positions]] = tensors[labels]
        real = real_tokens(tensors)
        sizes = first_tokens(tensors)[real].cumsum(0).bincount()[1:].tolist()
        return [self.student.decode(part.tolist()) for part in torch.split(ids[real], sizes)]

    def teacher_tensors(
        self, tensors: Mapping[str, Tensor], objective: TrainingObjective
    ) -> dict[str, Tensor]:
        """Return the inputs of the teacher: one padded row for each document."""
        encoded = self.teacher.encode(
            self.texts(tensors, objective), max_tokens=self.max_tokens, offsets=False
        )
        truncated = sum(text.truncated > 0 for text in encoded)
        self.cut_texts.add(truncated, len(encoded), self.max_tokens, "")
        # a text without tokens, such as white space, becomes one token of padding
        rows = [torch.tensor(text.ids or [self.teacher.pad_id]) for text in encoded]
        ids = nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=float(self.teacher.pad_id)
        )
        mask = torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows])
        return {f"{PREFIX}{IDS}": ids, f"{PREFIX}{MASK}": mask.long()}
