"""Question answering: the span of a context that answers a question, or no answer."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.finetuning.base import FineTuning
from zoo.finetuning.heads import HEAD
from zoo.finetuning.rows import TokenizedRows
from zoo.inference.processing.windows import WINDOW_TOKENS, ContextWindows, Window
from zoo.metrics.squad import ScoredAnswers
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.plugins import get_family
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
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Encoded
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.evaluation.base import Prediction
    from zoo.training.state.pretrained import PretrainedInit

LOG = logging.getLogger("zoo")
START, END = "start_positions", "end_positions"
# values of a row, see ``QuestionWindow``
SAMPLE, WINDOW, TOKENS = "sample", "window", "tokens"
FIRST, PART, NO_ANSWER = "first", "part", "no_answer"
SPANS, SCORES, NO_ANSWER_SCORE = "spans", "scores", "no_answer_score"  # predictions of a row
NONE = -1  # in place of a position
PLACES = (TOKENS, FIRST, PART, NO_ANSWER)
CHUNK = 512  # questions that are tokenized together, with offsets


class QuestionOptions(Options, frozen=True, kw_only=True):
    """Options of the task, ``task_args``; see ``zoo.tasks.question_answering.predict.Answer``."""

    doc_stride: int | None = None  # number of tokens that consecutive windows share
    max_answer_len: int = MAX_ANSWER_LEN  # largest number of tokens of a predicted answer
    null_threshold: float = 0.0  # threshold of no answer

    def __post_init__(self) -> None:
        if self.max_answer_len < 1:
            raise ValueError(f"max_answer_len is {self.max_answer_len}, not positive")


class QuestionWindow(NamedTuple):
    """A row of the data."""

    sample: int  # index of the question
    window: int  # index among the windows of the question
    ids: "NDArray[np.int32]"  # token ids, (tokens,), int32
    type_ids: "NDArray[np.int8]"  # token types, (tokens,), int8
    target: tuple[int, int]  # positions of the first and the last token of the answer
    first: int  # position of the first token of the context
    # first token of this part of the context in the pair, and the number of tokens
    part: tuple[int, int]
    no_answer: int  # position of the token that stands for no answer, or ``NONE``


class RowWindow(NamedTuple):
    """What the search for answers reads of a row's window; see ``Window``."""

    tokens: int
    first: int  # position of the first token of the context
    part: range  # positions of the tokens of the context in the pair
    no_answer: int  # position of the token that stands for no answer, or ``NONE``

    def no_answer_position(self, _: int | None) -> int | None:
        """Return the position of the token that stands for no answer."""
        return None if self.no_answer == NONE else self.no_answer

    def answer_mask(self, _: int | None) -> "NDArray[np.bool_]":
        """Return which tokens may be in an answer or stand for none, (tokens,), bool."""
        allowed: NDArray[np.bool_] = np.zeros(self.tokens, bool)
        allowed[self.first : self.first + len(self.part)] = True
        if self.no_answer != NONE:
            allowed[self.no_answer] = True
        return allowed


class QuestionAnswering(FineTuning):
    """Mean of the cross-entropies of the first and the last token of the answer."""

    # Long contexts are split into overlapping windows, and each is a row. The label is the first
    # correct answer. Where a window lacks a part of it, the label is the classification token
    # (Devlin et al. 2019, sec. 4.3); a model without such a token does not learn from these
    # windows. Probabilities are over the tokens of the window, without padding.
    # An evaluation computes the answers of ``zoo run answer`` from the best spans of all windows.

    name: ClassVar[str] = "question-answering"
    head: ClassVar[str] = "question-answering"
    varying_outputs: ClassVar[str] = "which has a logit for each token of a window"
    logits_per_count: float = 2.0
    default_metric: ClassVar[str] = "f1"
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_seq_len": WINDOW_TOKENS,
        "data": {"text": COLUMNS.text, "pair": COLUMNS.pair, "label": COLUMNS.label},
    }
    options_type: ClassVar[type[Options]] = QuestionOptions
    tokenizer: TextTokenizer
    samples: Sequence[QuestionSample] = ()

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        """Names of all metrics; some need data with unanswerable questions."""
        kinds = ("", "has_answer_", "no_answer_")
        return tuple(f"{kind}{name}" for kind in kinds for name in ("exact_match", "f1"))

    @override
    def metrics_of(self, samples: Sequence[Any]) -> Sequence[str]:
        answered, unanswered = (any(bool(s.answers) == k for s in samples) for k in (True, False))
        there = {"has_answer_": answered and unanswered, "no_answer_": unanswered}
        absent = tuple(prefix for prefix, counts in there.items() if not counts)
        return [name for name in self.metric_names if not name.startswith(absent)]

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        before = None if init is None else init.checkpoints.get("model")
        if init is None or before is None or HEAD in init.init_config.new_modules:
            return run
        if before.head_name != cls.head and Answer.name in before.head.tasks:
            raise UsageError(
                f"{init.init_config.model} has the head {before.head_name}, which {cls.name} does "
                "not train",
                f"--set init_from.new_modules=[{HEAD}] starts with a new head {cls.head}",
            )
        return run

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        columns = Columns(data.text, data.label_column, data.pair)
        return list(read_questions(paths, columns, problems))

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        return review_question(sample)

    @classmethod
    @override
    def texts(cls, sample: Any) -> list[str]:
        return [sample.question, sample.context]

    @classmethod
    @override
    def output_names(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the two outputs, as in transformers."""
        return ("LABEL_0", "LABEL_1")

    @override
    def target(self, sample: Any) -> AnswerSpan | None:
        """Return the first answer, if there is one."""
        return sample.answers[0] if sample.answers else None

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        self.tokenizer, self.samples = tokenizer, samples  # for evaluations, from the last call
        no_answer = tokenizer.role_id("cls")
        if no_answer is None and (bad := next((s for s in samples if not s.answers), None)):
            raise UsageError(
                f"{bad.location} has no answer, and the tokenizer has no classification token, "
                "which stands for that",
                "leave out questions without answers",
            )
        windows = list(self._windows(samples, no_answer))
        arrays: dict[str, NDArray[Any]] = {self.inputs[0]: np.concatenate([w.ids for w in windows])}
        if "token_type_ids" in self.inputs and any(w.type_ids.any() for w in windows):
            arrays["token_type_ids"] = np.concatenate([w.type_ids for w in windows])
        lengths = np.array([len(window.ids) for window in windows])
        targets = np.array([window.target for window in windows])
        values = {
            SAMPLE: np.array([window.sample for window in windows]),
            WINDOW: np.array([window.window for window in windows]),
            TOKENS: lengths,
            START: targets[:, 0],
            END: targets[:, 1],
            FIRST: np.array([window.first for window in windows]),
            PART: np.array([window.part for window in windows]),
            NO_ANSWER: np.array([window.no_answer for window in windows]),
        }
        counts = {self.name: (targets[:, 0] != IGNORED).astype(np.int64)}
        return TokenizedRows(np.cumsum([0, *lengths]), arrays, values, counts)

    def _windows(
        self, samples: Sequence[QuestionSample], no_answer: int | None
    ) -> Iterator[QuestionWindow]:
        for index, (sample, pair) in enumerate(zip(samples, self._pairs(samples), strict=True)):
            answer = self.target(sample)
            context = self._context_windows.context(pair)
            span = None if answer is None else answer_tokens(pair, context, answer)
            for number, window in enumerate(self._context_windows.split(pair)):
                no_answer_at = window.no_answer_position(no_answer)
                yield QuestionWindow(
                    index,
                    number,
                    np.array(window.ids, np.int32),
                    np.array(window.type_ids, np.int8),
                    window_target(window, span, no_answer),
                    window.first,
                    (window.part.start, len(window.part)),
                    NONE if no_answer_at is None else no_answer_at,
                )

    def _pairs(self, samples: Sequence[QuestionSample]) -> Iterator[Encoded]:
        """Tokenize questions with their contexts."""
        for start in range(0, len(samples), CHUNK):
            chunk = samples[start : start + CHUNK]
            texts = [self._context_windows.texts(s.question, s.context) for s in chunk]
            pairs = self.tokenizer.encode(texts, max_tokens=None)
            for sample, pair in zip(chunk, pairs, strict=True):
                self._context_windows.require_room(pair, sample.location)
                yield pair

    @cached_property
    def _context_windows(self) -> ContextWindows:
        family = get_family(self.run.family)
        return ContextWindows.of(family, self.run.max_seq_len, self.options.doc_stride)

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of first and last token, (rows, 2, tokens), -inf at padding."""
        inputs = {name: batch[name] for name in self.inputs if name in batch}
        outputs = model(**inputs)
        logits = torch.stack([at_least_float32(outputs[name]) for name in LOGITS], dim=1)
        positions = torch.arange(logits.shape[-1], device=logits.device)
        padding = positions >= batch[TOKENS][:, None]  # (rows, tokens)
        return Outputs({self.name: logits.masked_fill(padding[:, None], float("-inf"))})

    @override
    def scored_logits(
        self, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor]":
        return {self.name: outputs.logits[self.name][batch[START] != IGNORED].flatten(0, 1)}

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the cross-entropies; in an evaluation, return the best spans of each window."""
        logits, targets = outputs.logits[self.name], torch.stack([batch[START], batch[END]], dim=1)
        loss = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=IGNORED
        )
        predictions = {}
        if not torch.is_grad_enabled():
            predictions = {name: batch[name] for name in (SAMPLE, WINDOW)}
            # They take a small part of the memory of the logits.
            search = SpanSearch(None, self.options.max_answer_len)
            positions = np.full((len(logits), search.count, 2), NONE, np.int32)
            scores, no_answer = np.zeros(positions.shape[:2]), np.zeros(len(logits))
            windows = zip(*(batch[name].tolist() for name in PLACES), strict=True)
            for row, (tokens, first, (start, length), null) in enumerate(windows):
                window = RowWindow(tokens, first, range(start, start + length), null)
                best = search.window_spans(logits[row, :, :tokens].cpu().numpy(), window)
                for number, span in enumerate(best.spans):
                    positions[row, number], scores[row, number] = span[:2], span.score
                no_answer[row] = best.no_answer
            arrays = {SPANS: positions, SCORES: scores, NO_ANSWER_SCORE: no_answer}
            predictions |= {name: torch.from_numpy(values) for name, values in arrays.items()}
        return LossOutput({self.name: loss / 2}, predictions=predictions)

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        answers = [[answer.text for answer in sample.answers] for sample in self.samples]
        unanswerable, threshold = not all(answers), self.options.null_threshold
        texts = [
            candidates.best_text(unanswerable, threshold)
            for candidates in self._candidates(predictions)
        ]
        return ScoredAnswers.score(texts, answers).metrics()

    @override
    def reported(
        self,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[Any],
        numbers: Sequence[int],
    ) -> "Iterator[Prediction]":
        unanswerable = not all(sample.answers for sample in self.samples)
        threshold = self.options.null_threshold
        pairs = zip(self.samples, self._candidates(predictions), strict=True)
        for sample, candidates in pairs:
            yield question_row(sample, candidates, unanswerable, threshold)

    def _candidates(self, predictions: "Mapping[str, NDArray[Any]]") -> "Iterator[Candidates]":
        """Yield the answers to each question of the evaluation, from all its windows."""
        keys = zip(predictions[SAMPLE].tolist(), predictions[WINDOW].tolist(), strict=True)
        row_of = {key: row for row, key in enumerate(keys)}
        search = SpanSearch(None, self.options.max_answer_len)
        for index, pair in enumerate(self._pairs(self.samples)):
            spans = []
            for number, window in enumerate(self._context_windows.split(pair)):
                row = row_of[index, number]
                places, scores = (predictions[name][row].tolist() for name in (SPANS, SCORES))
                scored = zip(places, scores, strict=True)
                best = [Span(start, end, score) for (start, end), score in scored if start != NONE]
                no_answer = float(predictions[NO_ANSWER_SCORE][row])
                spans.append(WindowSpans(window.part, best, no_answer))
            yield search.candidates(pair, self.samples[index].context, spans)


def answer_tokens(pair: Encoded, context: range, answer: AnswerSpan) -> range:
    """Return the positions in a pair of the tokens that share characters with an answer."""
    offsets, start, end = pair.offsets, answer.answer_start, answer.end
    inside = [k for k in context if offsets[k][0] < end and offsets[k][1] > start]
    # a tokenizer may remove all characters of an answer
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def window_target(window: Window, span: range | None, no_answer: int | None) -> tuple[int, int]:
    """Return the positions of the first and the last token of an answer in a window."""
    # Where the window lacks a part of the answer, both are the position of ``no_answer``, or
    # ``IGNORED`` without such a token.
    part = window.part
    if span and part.start <= span.start and span.stop <= part.stop:
        shift = window.first - part.start
        return span.start + shift, span.stop - 1 + shift
    position = window.no_answer_position(no_answer)
    return (IGNORED, IGNORED) if position is None else (position, position)
