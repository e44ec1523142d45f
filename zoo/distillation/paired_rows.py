"""Rows of labelled data for students and teachers with different tokenizers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np

from zoo.checkpoint import load_text_tokenizer
from zoo.distillation.objective import Distillation, PairedExample
from zoo.errors import UsageError
from zoo.finetuning.model import text_tokenizer
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.setup import FineTuneSetup, SplitProblems, read_splits
from zoo.objectives.base import Example
from zoo.overrides import override

# heads whose logits are of tokens
OF_TOKENS = ("question-answering", "causal-lm", "seq2seq-lm")


@dataclass(frozen=True)
class PairedRows(TokenizedRows):
    """The rows of the student with the same samples as its teachers read them."""

    teacher: TokenizedRows | None = None

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        assert self.teacher is not None, "_pair sets it"
        row = super().example(index, rng)
        other = self.teacher.example(index, rng)
        return PairedExample(row.arrays, row.values, row.positions, row.counts, teacher=other)


def with_teacher_rows(base: FineTuneSetup, objective: Distillation) -> FineTuneSetup:
    """Add the teachers' rows to the setup if they read different tensors than the student."""
    if not objective.losses:
        return base
    checkpoints = [teacher.checkpoint for teacher in objective.teachers]
    encoders = [load_text_tokenizer(checkpoint) for checkpoint in checkpoints]
    student = text_tokenizer(base.family, base.model_config, base.run_tokenizer)
    tasks = [cast(FineTuning, teacher.objective) for teacher in objective.teachers]
    input_names = [task.input_names for task in tasks]
    if (
        all(student.makes_same_ids(encoder) for encoder in encoders)
        and all(names == base.objective.input_names for names in input_names)
        and all(task.has_same_rows(base.objective) for task in tasks)
    ):
        return base
    if any(not encoders[0].makes_same_ids(encoder) for encoder in encoders[1:]) or any(
        names != input_names[0] for names in input_names[1:]
    ):
        raise UsageError(
            "the teachers read different tokens", "give teachers with the same tokenizer"
        )
    problems = SplitProblems(skip=base.config.data.skip_invalid)  # reported for the student
    train_samples, eval_samples = read_splits(
        base.objective.task.data, base.config, problems, announce=False
    )
    train_split = tasks[0].set_train(_read_samples(base, train_samples, problems))
    eval_split = tasks[0].set_evaluation(_read_samples(base, eval_samples, problems))
    rows = (train_split.rows, eval_split.rows)
    aligned = objective.head not in OF_TOKENS and all(loss.needs_head for loss in objective.losses)
    pairs = zip((base.train_rows, base.eval_rows), rows, strict=True)
    train, evaluation = (_pair(first, second, aligned=aligned) for first, second in pairs)
    return replace(base, train_rows=train, eval_rows=evaluation)


def _read_samples(
    base: FineTuneSetup, samples: Sequence[Any], problems: SplitProblems
) -> list[Any]:
    """Return the samples that the student reads."""
    usable = base.objective.usable(samples, problems.train)
    return [sample for sample in usable if sample.location not in base.dropped]


def _pair(student: TokenizedRows, teacher: TokenizedRows, *, aligned: bool) -> PairedRows:
    """Return the rows of both; ``aligned`` if no loss compares single tokens."""
    if len(student) != len(teacher) or any(
        not np.array_equal(counts, teacher.counts[term]) for term, counts in student.counts.items()
    ):
        raise UsageError(
            "student and teacher split the samples into different rows",
            "take a student with the teacher's tokenizer, or raise max_seq_len",
        )
    ids = [next(iter(rows.arrays.values())) for rows in (student, teacher)]
    if not aligned and not np.array_equal(ids[0], ids[1]):
        raise UsageError(
            "student and teacher read different tokens, which cannot be compared",
            "terms such as kl, which compare logits of whole texts, work between any models",
        )
    student_fields = {field.name: getattr(student, field.name) for field in fields(TokenizedRows)}
    return PairedRows(**student_fields, teacher=teacher)
