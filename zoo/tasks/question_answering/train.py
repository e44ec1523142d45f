"""Training of question answering: the span of a context that answers a question, or no answer.

The loss is the mean of the cross-entropies of the first and the last token of the answer. Long
contexts are split into overlapping windows, and each is a row. The label is the first correct
answer. Where a window lacks a part of it, the label is the classification token (Devlin et al.
2019, sec. 4.3); a model without such a token does not learn from these windows. Probabilities are
over the tokens of the window, without padding. An evaluation computes the answers of ``zoo run
answer`` from the best spans of all windows.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.finetuning.heads import HEAD
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskData,
    TaskInputs,
    TaskLoss,
    TaskModel,
    model_inputs,
)
from zoo.inference.processing.windows import WINDOW_TOKENS, ContextWindows, Window
from zoo.inference.results import EvaluationResults, Prediction, ResultContext
from zoo.metrics.squad import ScoredAnswers
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.losses.predictions import losses_of_rows
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.question_answering.data import (
    COLUMNS,
    AnswerSpan,
    QuestionSample,
    read_questions,
    review_question,
)
from zoo.tasks.question_answering.evaluate import question_row
from zoo.tasks.question_answering.predict import LOGITS, Answer
from zoo.tasks.question_answering.spans import (
    MAX_ANSWER_LEN,
    Candidates,
    Span,
    SpanSearch,
    WindowSpans,
)
from zoo.tokenizers.tokenizer import Encoded
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.training.state.pretrained import PretrainedInit

# Values of a row; see ``QuestionWindow``.
SAMPLE = "sample"
WINDOW = "window"
TOKENS = "tokens"
FIRST = "first"
PART = "part"
NO_ANSWER = "no_answer"
# Predictions of a row.
SPANS = "spans"
SCORES = "scores"
NO_ANSWER_SCORE = "no_answer_score"
NO_POSITION = -1
CHUNK = 512  # Questions that are tokenized together, with offsets.


class QuestionOptions(Options, frozen=True, kw_only=True):
    """Options of the task, ``task_args``; see ``zoo.tasks.question_answering.predict.Answer``."""

    doc_stride: int | None = None  # Number of tokens that consecutive windows share.
    max_answer_len: int = MAX_ANSWER_LEN  # Largest number of tokens of a predicted answer.
    null_threshold: float = 0.0  # Threshold of no answer.

    def __post_init__(self) -> None:
        if self.max_answer_len < 1:
            raise ValueError(f"max_answer_len is {self.max_answer_len}, not positive")


class QuestionWindow(NamedTuple):
    """A row of the data."""

    sample: int  # Index of the question.
    window: int  # Index among the windows of the question.
    ids: "NDArray[np.int32]"  # Token ids, (tokens,), int32.
    type_ids: "NDArray[np.int8]"  # Token types, (tokens,), int8.
    target: tuple[int, int]  # Positions of the first and the last token of the answer.
    first: int  # Position of the first token of the context.
    # First token of this part of the context in the pair, and the number of tokens.
    part: tuple[int, int]
    no_answer: int  # Position of the token that stands for no answer, or ``NO_POSITION``.


class RowWindow(NamedTuple):
    """What the search for answers reads of a row's window; see ``Window``."""

    tokens: int
    first: int  # Position of the first token of the context.
    part: range  # Positions of the tokens of the context in the pair.
    no_answer: int  # Position of the token that stands for no answer, or ``NO_POSITION``.

    def no_answer_position(self, _: int | None) -> int | None:
        """Return the position of the token that stands for no answer."""
        return None if self.no_answer == NO_POSITION else self.no_answer

    def answer_mask(self, _: int | None) -> "NDArray[np.bool_]":
        """Return which tokens may be in an answer or stand for none, (tokens,), bool."""
        allowed: NDArray[np.bool_] = np.zeros(self.tokens, bool)
        allowed[self.first : self.first + len(self.part)] = True
        if self.no_answer != NO_POSITION:
            allowed[self.no_answer] = True
        return allowed


class QuestionData(TaskData[QuestionSample]):
    """Questions with contexts and answers."""

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[QuestionSample]:
        columns = Columns(table.text, table.label_column, table.pair)
        return list(read_questions(paths, columns, problems))

    @override
    def texts(self, sample: QuestionSample) -> list[str]:
        return [sample.question, sample.context]

    @override
    def review(self, sample: QuestionSample, table: TableConfig) -> Reviewed:
        return review_question(sample)

    @override
    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the two outputs, as in transformers."""
        return ("LABEL_0", "LABEL_1")

    @override
    def target(self, context: TaskContext, sample: QuestionSample) -> AnswerSpan | None:
        """Return the first answer, if there is one."""
        return sample.answers[0] if sample.answers else None


class QuestionModel(TaskModel):
    """A model with logits of the first and the last token of an answer."""

    @override
    def resolve_settings(
        self,
        task: FineTuningTask[Any],
        settings: FineTuneConfig,
        init: "PretrainedInit | None",
    ) -> FineTuneConfig:
        """Refuse another pretrained head that answers questions."""
        pretrained = None if init is None else init.checkpoints.get("model")
        if init is None or pretrained is None or HEAD in init.init_config.new_modules:
            return settings
        if pretrained.head_name != task.head and Answer.name in pretrained.head.tasks:
            raise UsageError(
                f"{init.init_config.model} has the head {pretrained.head_name}, which {task.name} "
                "does not train",
                f"--set init_from.new_modules=[{HEAD}] starts with a new head {task.head}",
            )
        return settings


class QuestionInputs(TaskInputs[QuestionSample]):
    """Windows of a context, each after the question."""

    varying_outputs: ClassVar[str] = "which has a logit for each token of a window"

    @override
    def rows(self, context: TaskContext, samples: Sequence[QuestionSample]) -> TokenizedRows:
        no_answer = context.tokenizer.role_id("cls")
        unanswered = next((sample for sample in samples if not sample.answers), None)
        if no_answer is None and unanswered is not None:
            raise UsageError(
                f"{unanswered.location} has no answer, and the tokenizer has no classification "
                "token, which stands for that",
                "leave out questions without answers",
            )
        windows = list(question_windows(context, samples, no_answer))
        arrays: dict[str, NDArray[Any]] = {}
        arrays[context.input_names[0]] = np.concatenate([window.ids for window in windows])
        if "token_type_ids" in context.input_names:
            type_ids = np.concatenate([window.type_ids for window in windows])
            if type_ids.any():
                arrays["token_type_ids"] = type_ids
        lengths = np.array([len(window.ids) for window in windows])
        values = {
            SAMPLE: np.array([window.sample for window in windows]),
            WINDOW: np.array([window.window for window in windows]),
            TOKENS: lengths,
            LABELS: np.array([window.target for window in windows]),
            FIRST: np.array([window.first for window in windows]),
            PART: np.array([window.part for window in windows]),
            NO_ANSWER: np.array([window.no_answer for window in windows]),
        }
        return TokenizedRows(np.cumsum([0, *lengths]), arrays, values, {})

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the logits of first and last token, (rows, 2, tokens), -inf at padding."""
        outputs = model(**model_inputs(context, batch))
        logits = torch.stack([at_least_float32(outputs[name]) for name in LOGITS], dim=1)
        positions = torch.arange(logits.shape[-1], device=logits.device)
        is_padding = positions >= batch[TOKENS][:, None]  # (rows, tokens)
        return Outputs({context.name: logits.masked_fill(is_padding[:, None], float("-inf"))})


def context_windows(context: TaskContext) -> ContextWindows:
    """Return how contexts are split into windows."""
    return ContextWindows.of(context.family, context.max_tokens, context.options.doc_stride)


def question_windows(
    context: TaskContext, samples: Sequence[QuestionSample], no_answer: int | None
) -> Iterator[QuestionWindow]:
    """Yield the windows of questions.

    Args:
        context: the run.
        samples: the questions.
        no_answer: the token that stands for no answer.
    """
    windows = context_windows(context)
    pairs = question_pairs(context, windows, samples)
    for index, (sample, pair) in enumerate(zip(samples, pairs, strict=True)):
        answer = context.target(sample)
        span = None
        if answer is not None:
            span = answer_tokens(pair, windows.context(pair), answer)
        for number, window in enumerate(windows.split(pair)):
            position = window.no_answer_position(no_answer)
            if position is None:
                position = NO_POSITION
            yield QuestionWindow(
                sample=index,
                window=number,
                ids=np.array(window.ids, np.int32),
                type_ids=np.array(window.type_ids, np.int8),
                target=window_target(window, span, no_answer),
                first=window.first,
                part=(window.part.start, len(window.part)),
                no_answer=position,
            )


def question_pairs(
    context: TaskContext, windows: ContextWindows, samples: Sequence[QuestionSample]
) -> Iterator[Encoded]:
    """Tokenize questions with their contexts."""
    for start in range(0, len(samples), CHUNK):
        chunk = samples[start : start + CHUNK]
        texts = [windows.texts(sample.question, sample.context) for sample in chunk]
        pairs = context.tokenizer.encode(texts, max_tokens=None)
        for sample, pair in zip(chunk, pairs, strict=True):
            windows.require_room(pair, sample.location)
            yield pair


class SpanCrossEntropy(TaskLoss):
    """Mean of the cross-entropies of the first and the last token of the answer."""

    logits_per_count: ClassVar[float] = 2.0
    label_tensor: ClassVar[str | None] = LABELS

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        first_labels = rows.values[LABELS][:, 0]
        return {context.name: (first_labels != IGNORED).astype(np.int64)}

    @override
    def scored_logits(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor]":
        logits = outputs.logits[context.name]
        is_labelled = batch[LABELS][:, 0] != IGNORED
        return {context.name: logits[is_labelled].flatten(0, 1)}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        """Return the cross-entropies; in an evaluation, also the best spans of each window."""
        logits = outputs.logits[context.name]
        labels = batch[LABELS].flatten()
        loss = F.cross_entropy(logits.flatten(0, 1), labels, reduction="sum", ignore_index=IGNORED)
        predictions: dict[str, Tensor] = {}
        if not torch.is_grad_enabled():
            predictions = best_spans(logits, batch, context.options.max_answer_len)
        compute_losses = partial(
            F.cross_entropy,
            logits.flatten(0, 1),
            labels,
            reduction="none",
            ignore_index=IGNORED,
        )
        row_sums = losses_of_rows(batch, context.name, lambda: compute_losses() / 2)
        return LossOutput({context.name: loss / 2}, predictions=predictions, row_sums=row_sums)


def best_spans(
    logits: "Tensor", batch: "Mapping[str, Tensor]", max_answer_len: int
) -> "dict[str, Tensor]":
    """Return the best spans of each window, which take a small part of the logits' memory."""
    search = SpanSearch(None, max_answer_len)
    positions = np.full((len(logits), search.count, 2), NO_POSITION, np.int32)
    scores = np.zeros(positions.shape[:2])
    no_answer_scores = np.zeros(len(logits))
    for row, window in enumerate(row_windows(batch)):
        best = search.window_spans(logits[row, :, : window.tokens].cpu().numpy(), window)
        for number, span in enumerate(best.spans):
            positions[row, number] = span[:2]
            scores[row, number] = span.score
        no_answer_scores[row] = best.no_answer
    return {
        SAMPLE: batch[SAMPLE],
        WINDOW: batch[WINDOW],
        SPANS: torch.from_numpy(positions),
        SCORES: torch.from_numpy(scores),
        NO_ANSWER_SCORE: torch.from_numpy(no_answer_scores),
    }


def row_windows(batch: "Mapping[str, Tensor]") -> Iterator[RowWindow]:
    """Yield the window of each row of a batch."""
    columns = [batch[name].tolist() for name in (TOKENS, FIRST, PART, NO_ANSWER)]
    for tokens, first, (start, length), no_answer in zip(*columns, strict=True):
        yield RowWindow(tokens, first, range(start, start + length), no_answer)


class QuestionResults(EvaluationResults[QuestionSample]):
    """Exact match and F1 of answers, from all windows of a question."""

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        """Return the names of all metrics; some need data with unanswerable questions."""
        prefixes = ("", "has_answer_", "no_answer_")
        names = list[str]()
        for prefix in prefixes:
            names += [f"{prefix}exact_match", f"{prefix}f1"]
        return tuple(names)

    @override
    def default_metric(self, context: ResultContext) -> str:
        return "f1"

    @override
    def available_metrics(
        self, context: ResultContext, samples: Sequence[QuestionSample]
    ) -> Sequence[str]:
        has_answered = any(sample.answers for sample in samples)
        has_unanswered = any(not sample.answers for sample in samples)
        names = list(self.metric_names(context))
        if not (has_answered and has_unanswered):
            names = [name for name in names if not name.startswith("has_answer_")]
        if not has_unanswered:
            names = [name for name in names if not name.startswith("no_answer_")]
        return names

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        answers = list[list[str]]()
        for sample in evaluated_questions(context):
            answers.append([answer.text for answer in sample.answers])
        has_unanswered = not all(answers)
        threshold = null_threshold(context)
        predicted_texts = list[str]()
        for candidates in answer_candidates(context, predictions):
            predicted_texts.append(candidates.best_text(has_unanswered, threshold))
        return ScoredAnswers.score(predicted_texts, answers).metrics()

    @override
    def rows(
        self,
        context: ResultContext,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[QuestionSample],
        numbers: Sequence[int],
    ) -> Iterator[Prediction]:
        questions = evaluated_questions(context)
        has_unanswered = not all(question.answers for question in questions)
        threshold = null_threshold(context)
        candidates = answer_candidates(context, predictions)
        for question, question_candidates in zip(questions, candidates, strict=True):
            yield question_row(question, question_candidates, has_unanswered, threshold)


def evaluated_questions(context: ResultContext) -> Sequence[QuestionSample]:
    """Return the questions of the evaluation."""
    assert isinstance(context, TaskContext)
    assert context.evaluation is not None, "the evaluation data is tokenized first"
    return context.evaluation.samples


def null_threshold(context: ResultContext) -> float:
    """Return the threshold of no answer."""
    assert isinstance(context, TaskContext)
    threshold: float = context.options.null_threshold
    return threshold


def answer_candidates(
    context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
) -> Iterator[Candidates]:
    """Yield the answers to each question of the evaluation, from all its windows."""
    assert isinstance(context, TaskContext)
    samples = evaluated_questions(context)
    keys = zip(predictions[SAMPLE].tolist(), predictions[WINDOW].tolist(), strict=True)
    row_of_window = {key: row for row, key in enumerate(keys)}
    search = SpanSearch(None, context.options.max_answer_len)
    windows = context_windows(context)
    for index, pair in enumerate(question_pairs(context, windows, samples)):
        window_spans = list[WindowSpans]()
        for number, window in enumerate(windows.split(pair)):
            row = row_of_window[index, number]
            positions = predictions[SPANS][row].tolist()
            scores = predictions[SCORES][row].tolist()
            spans = list[Span]()
            for (start, end), score in zip(positions, scores, strict=True):
                if start != NO_POSITION:
                    spans.append(Span(start, end, score))
            no_answer = float(predictions[NO_ANSWER_SCORE][row])
            window_spans.append(WindowSpans(window.part, spans, no_answer))
        yield search.candidates(pair, samples[index].context, window_spans)


def answer_tokens(pair: Encoded, context: range, answer: AnswerSpan) -> range:
    """Return the positions in a pair of the tokens that share characters with an answer."""
    positions = list[int]()
    for position in context:
        start, end = pair.offsets[position]
        if start < answer.end and end > answer.answer_start:
            positions.append(position)
    if not positions:  # A tokenizer may remove all characters of an answer.
        return range(0)
    return range(positions[0], positions[-1] + 1)


def window_target(window: Window, span: range | None, no_answer: int | None) -> tuple[int, int]:
    """Return the positions of the first and the last token of an answer in a window.

    Where the window lacks a part of the answer, both are the position of ``no_answer``, or
    ``IGNORED`` without such a token.
    """
    part = window.part
    if span and part.start <= span.start and span.stop <= part.stop:
        shift = window.first - part.start
        return span.start + shift, span.stop - 1 + shift
    position = window.no_answer_position(no_answer)
    if position is None:
        position = IGNORED
    return position, position


QUESTION_ANSWERING = FineTuningTask(
    name="question-answering",
    head="question-answering",
    data=QuestionData(),
    inputs=QuestionInputs(),
    loss=SpanCrossEntropy(),
    results=QuestionResults(),
    model=QuestionModel(),
    options_type=QuestionOptions,
    defaults={
        "max_seq_len": WINDOW_TOKENS,
        "data": {"text": COLUMNS.text, "pair": COLUMNS.pair, "label": COLUMNS.label},
    },
)
