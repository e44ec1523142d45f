"""Training of rerankers: cross-encoders that score pairs of a query and a text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.families.tasks import LabelType
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, tokenize
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskData,
    TaskInputs,
    TaskLoss,
    TaskModel,
    TaskSplit,
)
from zoo.finetuning.windows import (
    POOL_WINDOWS,
    TEXTS,
    WINDOW_LENGTHS,
    collate_windows,
    text_windows,
    tokenize_windows,
)
from zoo.inference.processing.windows import WindowPooling
from zoo.inference.results import ResultContext
from zoo.io.limits import MAX_CONFIG_LABELS
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.reranker.data import ListColumns, TextList, join_lists, read_lists, review_list
from zoo.tasks.reranker.losses import (
    RANKING_LOSSES,
    BinaryCrossEntropyLoss,
    GradeCrossEntropyLoss,
    MarginErrorLoss,
    RankingLoss,
    Weighting,
)
from zoo.tasks.reranker.results import GRADES, METRICS, PAIRS, QUERIES, SCORE, RankingResults
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

NAME = "reranker"
WINDOW_COUNTS = "window_counts"  # The value of a row with the number of windows of each pair.
WINDOW_PAIRS = "window_pairs"  # Tensor of a batch, (windows,): index of the window's pair.
LossName = Literal["binary-cross-entropy", "cross-entropy", "list-net", "lambda", "margin-mse"]


class RerankerOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of rerankers."""

    loss: LossName = "binary-cross-entropy"  # The loss over the texts of a query.
    # The lowest and the highest label of the data, which are mapped to 0 and 1.
    score_range: tuple[float, float] | None = None
    weighting: Weighting = "ndcg-loss2++"  # The weights of pairs in ``lambda``.
    sigma: float = 1.0  # The factor of margins in ``lambda``.
    # Read texts of more than ``max_seq_len`` tokens in windows that share this number of tokens,
    # each with the whole query; by default texts are truncated.
    doc_stride: int | None = None
    # The score of a text of several windows: the best window's, their mean, or the first one's.
    window_pooling: WindowPooling = "max"

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"sigma is {self.sigma}, not positive")
        if self.score_range is None:
            return
        if not self.score_range[0] < self.score_range[1]:
            raise ValueError(f"score_range is {self.score_range}, not the lowest score first")
        if self.loss == GradeCrossEntropyLoss.name:
            raise ValueError("score_range maps labels to 0 to 1, and cross-entropy takes classes")


def ranking_loss(context: ResultContext) -> RankingLoss:
    """Return the loss that the options of a run select."""
    assert isinstance(context, TaskContext)
    return RANKING_LOSSES[context.options.loss]


def is_classifier(settings: FineTuneConfig) -> bool:
    """Return whether the model has an output for each grade."""
    name = settings.task_args.get("loss", BinaryCrossEntropyLoss.name)
    loss = RANKING_LOSSES.get(name)
    return loss is not None and loss.activation is None


class RankingData(TaskData[TextList]):
    """Queries with texts and labels."""

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[TextList]:
        if table.pair is None:
            raise UsageError(
                f"{NAME} ranks texts for a query", "name the column of the texts with --pair"
            )
        has_label = table.label is not None or not table.negatives
        label = table.label_column if has_label else None
        return read_lists(
            paths, ListColumns(table.text, table.pair, label, table.negatives), problems
        )

    @override
    def texts(self, sample: TextList) -> list[str]:
        return [sample.text, *sample.documents]

    @override
    def review(self, sample: TextList, table: TableConfig) -> Reviewed:
        return review_list(sample)

    @override
    def fit_labels(
        self, settings: FineTuneConfig, samples: Sequence[TextList], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the grades as classes of ``cross-entropy``, from 0 to the highest."""
        if not is_classifier(settings):
            return ()
        highest = int(max(max(sample.labels) for sample in samples))
        if highest >= MAX_CONFIG_LABELS:
            raise UsageError(
                f"the training data has the label {highest}, and cross-entropy has an output for "
                "each grade from 0",
                "choose another loss",
            )
        return tuple(map(str, range(max(highest, 1) + 1)))

    @override
    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        return labels or ("LABEL_0",)  # As in transformers.

    @override
    def target(self, context: TaskContext, sample: TextList) -> "NDArray[np.float32]":
        """Return the labels of the texts, (texts,), float32."""
        labels = np.array(sample.labels, np.float32)
        if context.options.score_range is not None:
            low, high = context.options.score_range
            labels = (labels - low) / np.float32(high - low)
        ranking_loss(context).check(sample, labels, len(context.config.labels))
        return labels

    @override
    def usable(
        self, context: TaskContext, samples: Sequence[TextList], problems: RowProblems
    ) -> list[TextList]:
        """Return the samples that suit the loss; of a loss over lists, one for each query."""
        usable = super().usable(context, samples, problems)
        if ranking_loss(context).needs_lists:
            return join_lists(usable)
        return usable

    @override
    def warnings(
        self, context: TaskContext, train: TaskSplit[TextList], evaluation: TaskSplit[TextList]
    ) -> list[str]:
        metric = context.settings.metric_for_best_model or METRICS[0]
        lists = join_lists(evaluation.samples)
        texts = sum(len(text_list.documents) for text_list in lists)
        if metric not in METRICS or len(lists) != texts:
            return []
        return [
            f"each query to evaluate has one text, so that {metric} does not tell models apart; "
            "--set metric_for_best_model=spearman does"
        ]


class RankingModel(TaskModel):
    """A cross-encoder with one output, or a classifier of grades."""

    @override
    def config_changes(self, settings: FineTuneConfig) -> dict[str, Any]:
        if is_classifier(settings):
            return {"problem": "single_label_classification"}
        return {}

    @override
    def require_valid(self, context: TaskContext) -> None:
        if context.options.loss == MarginErrorLoss.name and context.settings.data.label is None:
            raise UsageError(
                "the loss margin-mse needs the scores of a teacher",
                "name the column of its scores or margins with --label",
            )

    @override
    def trained_models(self, context: TaskContext, model: "nn.Module") -> dict[str, TrainedModel]:
        activation = ranking_loss(context).activation
        fields = {} if activation is None else {"score_activation": activation}
        return {"model": TrainedModel(model, context.config, context.head, fields=fields)}


class RankingInputs(TaskInputs[TextList]):
    """A row has the pairs of a query one after another."""

    varying_outputs: ClassVar[str] = "whose queries have different numbers of texts"

    @override
    def averages_windows(self, context: TaskContext) -> bool:
        return context.options.doc_stride is not None

    @override
    def rows(self, context: TaskContext, samples: Sequence[TextList]) -> TokenizedRows:
        loss = ranking_loss(context)
        tokens, window_lengths = self._tokenize(context, samples)
        sizes = [len(sample.documents) for sample in samples]
        ends = np.cumsum([0, *sizes])
        query_numbers: dict[str, int] = {}
        queries: list[NDArray[Any]] = []
        for sample, size in zip(samples, sizes, strict=True):
            number = query_numbers.setdefault(sample.text, len(query_numbers))
            queries.append(np.full(size, number))
        lengths = []
        window_counts = []
        for start, end in pairwise(ends):
            lengths.append(np.concatenate(window_lengths[start:end]))
            window_counts.append(np.array([len(pair) for pair in window_lengths[start:end]]))
        values = {
            WINDOW_LENGTHS: lengths,
            WINDOW_COUNTS: window_counts,
            LABELS: [context.target(sample) for sample in samples],
            GRADES: [np.array(loss.grades(sample), np.float32) for sample in samples],
            QUERIES: queries,
            PAIRS: np.split(np.arange(ends[-1]), ends[1:-1]),
        }
        counts = [loss.count(sample.labels, context.options) for sample in samples]
        return TokenizedRows(
            tokens.starts[ends],
            tokens.arrays,
            # Arrays of different lengths are the items of one array.
            {name: np.fromiter(parts, object, len(parts)) for name, parts in values.items()},
            {context.name: np.array(counts)},
            tokens.truncated,
            num_texts=int(ends[-1]),
        )

    @override
    def collate(
        self, context: TaskContext, examples: Sequence[Example], terms: Sequence[str]
    ) -> Batch:
        """Return pairs as rows, with one value each, and ``TEXTS``, the index of their list.

        In windows, rows are windows, and ``WINDOW_PAIRS`` is the index of their pair.
        """
        only_lengths = [
            replace(example, values={WINDOW_LENGTHS: example.values[WINDOW_LENGTHS]})
            for example in examples
        ]
        batch = collate_windows(
            only_lengths, self.padding(context), terms, masks=self.masks(context)
        )
        tensors = dict(batch.tensors)
        counts = np.concatenate([row.values[WINDOW_COUNTS] for row in examples])
        if context.options.doc_stride is not None:
            tensors[WINDOW_PAIRS] = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
            sizes = [len(row.values[WINDOW_COUNTS]) for row in examples]
            tensors[TEXTS] = torch.from_numpy(np.repeat(np.arange(len(examples)), sizes))
        for name in (LABELS, GRADES, QUERIES, PAIRS):
            values = np.concatenate([row.values[name] for row in examples])
            tensors[name] = torch.from_numpy(values)
        if ranking_loss(context).activation is None:  # The labels are classes.
            tensors[LABELS] = tensors[LABELS].long()
        return replace(batch, tensors=tensors)

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        outputs = super().forward(context, model, batch)
        if WINDOW_PAIRS not in batch:
            return outputs
        pool_windows = POOL_WINDOWS[context.options.window_pooling]
        logits = outputs.logits[context.name]
        logits = pool_windows(logits, batch[WINDOW_PAIRS], len(batch[LABELS]))
        return Outputs({context.name: logits})

    def _tokenize(
        self, context: TaskContext, samples: Sequence[TextList]
    ) -> "tuple[TokenizedTexts, NDArray[Any]]":
        """Return the tokens of all pairs, and the numbers of tokens of the windows of each."""
        pairs = [(sample.text, text) for sample in samples for text in sample.documents]
        locations = [sample.location for sample in samples for _ in sample.documents]
        tokenizer = context.tokenizer
        names = context.input_names
        if context.options.doc_stride is None:
            tokens = tokenize(pairs, tokenizer, names, context.max_tokens, locations=locations)
            return tokens, np.diff(tokens.starts)[:, None]
        windows = text_windows(context.settings, context.options.doc_stride)
        return tokenize_windows(pairs, tokenizer, names, windows, locations=locations)


class RerankerLoss(TaskLoss):
    """The loss that the option ``loss`` selects."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def label_type(self, context: TaskContext) -> LabelType:
        return "classes" if ranking_loss(context).activation is None else "numbers"

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        return {context.name: rows.counts[context.name]}  # From the labels of the table.

    @override
    def count_logits(self, context: TaskContext, batch: Batch, term: str) -> int:
        return len(batch.tensors[LABELS])

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        loss = ranking_loss(context)
        logits = outputs.logits[context.name]
        labels = batch[LABELS]
        if loss.activation is None:
            total = loss.sum(logits, labels, torch.ones_like(labels), context.options)
            grades = torch.arange(logits.shape[1], device=logits.device, dtype=logits.dtype)
            scores = logits.detach().softmax(-1) @ grades
        else:
            scores = logits.squeeze(-1)
            total = loss.sum(*pad_lists(scores, labels, batch[TEXTS]), context.options)
        predictions = {SCORE: scores.detach(), "label": labels.to(scores.dtype)}
        for name in (GRADES, QUERIES, PAIRS):
            predictions[name] = batch[name]
        return LossOutput({context.name: total}, predictions=predictions)


def pad_lists(
    scores: "Tensor", labels: "Tensor", lists: "Tensor"
) -> "tuple[Tensor, Tensor, Tensor]":
    """Return scores and labels of pairs as (lists, texts), and which ones are there.

    Args:
        scores: score of each pair, (pairs,).
        labels: label of each pair, (pairs,).
        lists: number of the list of each pair, in order, (pairs,).
    """
    sizes = torch.bincount(lists)
    present = torch.arange(int(sizes.max()), device=lists.device) < sizes[:, None]
    padding = scores.new_zeros(present.shape)
    padded_scores = padding.masked_scatter(present, scores)
    padded_labels = padding.masked_scatter(present, labels.to(scores.dtype))
    return padded_scores, padded_labels, present


RERANKER = FineTuningTask(
    name=NAME,
    head="sequence-classification",
    data=RankingData(),
    inputs=RankingInputs(),
    loss=RerankerLoss(),
    results=RankingResults(ranking_loss),
    model=RankingModel(),
    options_type=RerankerOptions,
    problem="regression",
)
