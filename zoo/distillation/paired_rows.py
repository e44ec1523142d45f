"""Rows of labelled data for students and teachers with different tokenizers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np

from zoo.checkpoint import load_text_tokenizer
from zoo.distillation.objective import Distillation, PairedExample
from zoo.distillation.sentences import READ_BY_TEACHER
from zoo.errors import UsageError
from zoo.finetuning.model import text_tokenizer
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.setup import FineTuneSetup, SplitProblems, count_cut_texts, read_splits
from zoo.inference.task_warnings import cut_line
from zoo.objectives.base import Example
from zoo.overrides import override
from zoo.tokenizers import TextTokenizer

# Heads that return logits of tokens.
TOKEN_HEADS = ("question-answering", "causal-lm", "seq2seq-lm")


@dataclass(frozen=True)
class PairedRows(TokenizedRows):
    """The rows of the student with the same samples as its teachers read them."""

    teacher: TokenizedRows | None = None

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        assert self.teacher is not None, "_pair sets it"
        row = super().example(index, rng)
        return PairedExample(
            row.arrays,
            row.values,
            row.positions,
            row.counts,
            teacher=self.teacher.example(index, rng),
        )


def with_teacher_rows(base: FineTuneSetup, objective: Distillation) -> FineTuneSetup:
    """Add the teachers' rows to the setup if they read different tensors than the student."""
    if not objective.losses:
        return base
    tokenizers = [load_text_tokenizer(teacher.checkpoint) for teacher in objective.teachers]
    tasks = [cast(FineTuning, teacher.objective) for teacher in objective.teachers]
    if _reads_student_rows(base, tokenizers, tasks):
        return base
    for tokenizer, task in zip(tokenizers[1:], tasks[1:], strict=True):
        has_same_ids = tokenizers[0].makes_same_ids(tokenizer)
        if not has_same_ids or task.input_names != tasks[0].input_names:
            raise UsageError(
                "the teachers read different tokens", "give teachers with the same tokenizer"
            )
    problems = SplitProblems(skip=base.config.data.skip_invalid)  # The student reports them.
    train_samples, eval_samples = read_splits(
        base.objective.task.data, base.config, problems, announce=False
    )
    train_split = tasks[0].set_train(_read_samples(base, train_samples, problems))
    eval_split = tasks[0].set_evaluation(_read_samples(base, eval_samples, problems))
    truncated, total = count_cut_texts(train_split.rows, eval_split.rows)
    cut_lines = list(base.cut_lines)
    if truncated:
        line = cut_line(truncated, total, base.config.max_seq_len)
        cut_lines.append(f"{READ_BY_TEACHER}{line}")
    compares_heads = all(loss.needs_head for loss in objective.losses)
    compares_tokens = objective.head in TOKEN_HEADS or not compares_heads
    return replace(
        base,
        train_rows=_pair(base.train_rows, train_split.rows, compares_tokens=compares_tokens),
        eval_rows=_pair(base.eval_rows, eval_split.rows, compares_tokens=compares_tokens),
        cut_lines=cut_lines,
    )


def _reads_student_rows(
    base: FineTuneSetup, tokenizers: Sequence[TextTokenizer], tasks: Sequence[FineTuning]
) -> bool:
    """Return whether all teachers read the tensors of the student."""
    student = text_tokenizer(base.family, base.model_config, base.run_tokenizer)
    for tokenizer, task in zip(tokenizers, tasks, strict=True):
        if not student.makes_same_ids(tokenizer):
            return False
        if task.input_names != base.objective.input_names:
            return False
        if not task.has_same_rows(base.objective):
            return False
    return True


def _read_samples(
    base: FineTuneSetup, samples: Sequence[Any], problems: SplitProblems
) -> list[Any]:
    """Return the samples that the student reads."""
    usable = base.objective.usable(samples, problems.train)
    return [sample for sample in usable if sample.location not in base.dropped]


def _pair(student: TokenizedRows, teacher: TokenizedRows, *, compares_tokens: bool) -> PairedRows:
    """Return the rows of both, after checking that a loss can compare them."""
    if not _has_same_counts(student, teacher):
        raise UsageError(
            "student and teacher split the samples into different rows",
            "take a student with the teacher's tokenizer, or raise max_seq_len",
        )
    student_ids = next(iter(student.arrays.values()))
    teacher_ids = next(iter(teacher.arrays.values()))
    if compares_tokens and not np.array_equal(student_ids, teacher_ids):
        raise UsageError(
            "student and teacher read different tokens, which cannot be compared",
            "terms such as kl, which compare logits of whole texts, work between any models",
        )
    student_fields = {field.name: getattr(student, field.name) for field in fields(TokenizedRows)}
    return PairedRows(**student_fields, teacher=teacher)


def _has_same_counts(student: TokenizedRows, teacher: TokenizedRows) -> bool:
    """Return whether both split the samples into the same rows."""
    if len(student) != len(teacher):
        return False
    for term, counts in student.counts.items():
        if not np.array_equal(counts, teacher.counts[term]):
            return False
    return True
