"""Training of rerankers: cross-encoders that score pairs of a query and a text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch.nn import functional as F

from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.families.config import Problem
from zoo.finetuning.base import LABELS, FineTuning
from zoo.finetuning.rows import TokenizedRows, tokenize
from zoo.finetuning.windows import TEXTS, WINDOW_LENGTHS, collate_windows
from zoo.inference.processing.similarity import score_error
from zoo.io.limits import MAX_CONFIG_LABELS
from zoo.metrics.ranks import correlations
from zoo.metrics.retrieval import RANKING_NAMES, ranking_scores
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.reranker.data import ListColumns, TextList, join_lists, read_lists, review_list
from zoo.tasks.reranker.losses import (
    RERANKER_LOSSES,
    RerankerLoss,
    Weighting,
    binary_cross_entropy,
    lambda_loss,
    list_net,
    margin_mse,
)
from zoo.tasks.reranker.rows import ranked_row
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.evaluation.base import Prediction

Kind = Literal["binary-cross-entropy", "cross-entropy", "list-net", "lambda", "margin-mse"]
# values of pairs in a batch: grade for metrics, number of the query and of the pair in its split
GRADES, QUERIES, PAIRS = "grades", "queries", "pairs"
METRICS = ("ndcg_at_10", "mrr_at_10", "map")
ONE_OUTPUT = ("LABEL_0",)  # as in transformers
KIND: Kind = "binary-cross-entropy"


class RerankerOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``Reranker``."""

    loss: Kind = KIND  # name of the loss
    # lowest and highest label of the data, which are mapped to 0 and 1
    score_range: tuple[float, float] | None = None
    weighting: Weighting = "ndcg-loss2++"  # weights of pairs in ``lambda``
    sigma: float = 1.0  # factor of margins in ``lambda``

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"sigma is {self.sigma}, not positive")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError(f"score_range is {self.score_range}, not the lowest score first")
        if self.score_range is not None and self.loss == "cross-entropy":
            raise ValueError("score_range maps labels to 0 to 1, and cross-entropy takes classes")


class Reranker(FineTuning):
    """Scores of the texts of a query, by one of ``RERANKER_LOSSES``."""

    # binary-cross-entropy: labels from 0 to 1 of each text
    # cross-entropy: grades of each text as classes, each with an output of the model
    # list-net, lambda: labels of all texts of a query, whose rows are joined
    # margin-mse: the scores that a teacher gives a text and negatives, or their margins

    name: ClassVar[str] = "reranker"
    head: ClassVar[str] = "sequence-classification"
    problem: ClassVar[Problem | None] = "regression"
    varying_outputs: ClassVar[str] = "whose queries have different numbers of texts"
    options_type: ClassVar[type[Options]] = RerankerOptions
    default_metric: ClassVar[str] = "ndcg_at_10"

    def __init__(self, *args: Any) -> None:
        self.dtype = "float32"  # of the computation of the last scores
        super().__init__(*args)
        if self.kind == "margin-mse" and self.run.data.label is None:
            raise UsageError(
                "the loss margin-mse needs the scores of a teacher",
                "name the column of its scores or margins with --label",
            )

    @property
    def kind(self) -> Kind:
        """Name of the loss."""
        kind: Kind = self.options.loss
        return kind

    @property
    def declared(self) -> RerankerLoss:
        """Declaration of the loss."""
        return RERANKER_LOSSES[self.kind]

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return (*METRICS, "spearman")

    @override
    def metrics_of(self, samples: Sequence[Any]) -> Sequence[str]:
        return self.metric_names if any(max(_grades(s, self.kind)) > 0 for s in samples) else ()

    @classmethod
    @override
    def config_changes(cls, run: FineTuneConfig) -> dict[str, Any]:
        classes = run.task_args.get("loss") == "cross-entropy"
        return {"problem": "single_label_classification"} if classes else {}

    @classmethod
    @override
    def fix_labels(
        cls, run: FineTuneConfig, samples: Sequence[Any], known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the grades in order as classes of ``cross-entropy``, from 0 to the highest."""
        if run.task_args.get("loss") != "cross-entropy":
            return ()
        highest = int(max(max(sample.labels) for sample in samples))
        if highest >= MAX_CONFIG_LABELS:
            raise UsageError(
                f"the training data has the label {highest}, and cross-entropy has an output for "
                "each grade from 0",
                "choose another loss",
            )
        return tuple(map(str, range(max(highest, 1) + 1)))

    @classmethod
    @override
    def output_names(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        return labels or ONE_OUTPUT

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        if data.pair is None:
            raise UsageError(
                f"{cls.name} ranks texts for a query", "name the column of the texts with --pair"
            )
        label = data.label_column if data.label or not data.negatives else None
        columns = ListColumns(data.text, data.pair, label, data.negatives)
        return read_lists(paths, columns, problems)

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        return review_list(sample)

    @classmethod
    @override
    def texts(cls, sample: Any) -> list[str]:
        return [sample.text, *sample.documents]

    @override
    def usable(self, samples: Sequence[Any], problems: RowProblems) -> list[Any]:
        """Return the samples that suit the loss; of a loss over lists, one for each query."""
        kept = super().usable(samples, problems)
        return join_lists(kept) if self.declared.needs_lists else kept

    @override
    def target(self, sample: TextList) -> Any:
        """Return the labels of the texts, (texts,), float32."""
        labels = np.array(sample.labels, np.float32)
        if self.options.score_range is not None:
            low, high = self.options.score_range
            labels = (labels - low) / np.float32(high - low)
        if sample.margins and self.kind != "margin-mse":
            raise RowError(
                f"{sample.location} has a label for the negatives only",
                "give each text a label, or --set task_args.loss=margin-mse for margins",
            )
        if self.kind == "margin-mse" and len(labels) < 2:
            raise RowError(
                f"{sample.location} has one text, and margin-mse compares it with negatives",
                "name their columns with --negative, or give lists",
            )
        if self.kind == "cross-entropy":
            classes = len(self.config.labels)
            wrong = labels[(labels % 1 != 0) | (labels < 0) | (labels >= classes)]
            if len(wrong):
                raise RowError(
                    f"{sample.location}: the label {wrong[0]:g} is not a class",
                    f"cross-entropy takes the grades of the training data, 0 to {classes - 1}",
                )
        if self.kind == KIND and not ((labels >= 0) & (labels <= 1)).all():
            raise RowError(
                f"{sample.location} has a label that is not from 0 to 1",
                "--set task_args.score_range=[LOWEST,HIGHEST] maps labels to 0 to 1",
            )
        return labels

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """Return rows that have the pairs of a query one after another."""
        pairs = [(sample.text, text) for sample in samples for text in sample.documents]
        locations = [sample.location for sample in samples for _ in sample.documents]
        limit = self.run.max_seq_len
        tokens = tokenize(pairs, tokenizer, self.inputs, limit, locations=locations)
        ends = np.cumsum([0, *(len(sample.documents) for sample in samples)])
        numbers: dict[str, int] = {}
        queries = [numbers.setdefault(sample.text, len(numbers)) for sample in samples]
        values = {
            WINDOW_LENGTHS: np.split(np.diff(tokens.starts), ends[1:-1]),
            LABELS: [self.target(sample) for sample in samples],
            GRADES: [np.array(_grades(sample, self.kind), np.float32) for sample in samples],
            QUERIES: [
                np.full(len(sample.documents), number)
                for sample, number in zip(samples, queries, strict=True)
            ],
            PAIRS: np.split(np.arange(ends[-1]), ends[1:-1]),
        }
        squares = self.kind == "lambda" and self.options.weighting == "ndcg-loss1"
        counts = [  # of the values that a list adds to the loss
            len(sample.labels) ** 2 if squares else self.declared.count(sample.labels)
            for sample in samples
        ]
        return TokenizedRows(
            tokens.starts[ends],
            tokens.arrays,
            # arrays of different lengths are the items of one array
            {name: np.fromiter(parts, object, len(parts)) for name, parts in values.items()},
            {self.name: np.array(counts)},
            tokens.truncated,
        )

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        """Return pairs as rows, with one value each, and ``TEXTS``, the index of their list."""
        lengths = [
            replace(example, values={WINDOW_LENGTHS: example.values[WINDOW_LENGTHS]})
            for example in examples
        ]
        terms = list(self.loss_weights)
        batch = collate_windows(lengths, self.padding(), terms, masks=self.masks())
        values = {
            name: torch.from_numpy(np.concatenate([row.values[name] for row in examples]))
            for name in (LABELS, GRADES, QUERIES, PAIRS)
        }
        return replace(batch, tensors={**batch.tensors, **values})

    @override
    def count_logits(self, batch: Batch, term: str) -> int:
        return len(batch.tensors[LABELS])

    @override
    def data_warnings(
        self, train: Sequence[Any], evaluation: Sequence[Any], rows: TokenizedRows
    ) -> list[str]:
        warnings = super().data_warnings(train, evaluation, rows)
        lists = join_lists(evaluation)
        if self.metric_for_best_model in METRICS and len(lists) == sum(
            len(item.documents) for item in lists
        ):
            warnings.append(
                f"each query to evaluate has one text, so that {self.metric_for_best_model} does "
                "not tell models apart; --set metric_for_best_model=spearman does"
            )
        return warnings

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of pairs, (pairs, outputs), float32."""
        device = batch[LABELS].device.type
        lower = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lower else torch.float32
        self.dtype = str(dtype).removeprefix("torch.")
        return super().forward(model, batch)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        logits, labels, lists = outputs.logits[self.name], batch[LABELS], batch[TEXTS]
        if self.kind == "cross-entropy":
            total = F.cross_entropy(logits, labels.long(), reduction="sum")
            grades = torch.arange(logits.shape[1], device=logits.device, dtype=logits.dtype)
            scores = logits.detach().softmax(-1) @ grades
        else:
            scores = logits.squeeze(-1)
            total = self._sum(*pad_lists(scores, labels, lists))
        predictions = {"score": scores.detach(), "label": labels}
        kept = {name: batch[name] for name in (GRADES, QUERIES, PAIRS)}
        return LossOutput({self.name: total}, predictions={**predictions, **kept})

    def _sum(self, scores: "Tensor", labels: "Tensor", present: "Tensor") -> "Tensor":
        match self.kind:
            case "list-net":
                return list_net(scores, labels, present)
            case "lambda":
                options = self.options
                return lambda_loss(scores, labels, present, options.weighting, options.sigma)
            case "margin-mse":
                return margin_mse(scores, labels, present)
            case _:
                return binary_cross_entropy(scores, labels, present)

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """Return the metrics of all texts of a query; ``spearman`` is over all pairs."""
        _, first = np.unique(predictions[PAIRS], return_index=True)
        values = {name: array[first] for name, array in predictions.items()}
        order = np.argsort(values[QUERIES], kind="stable")
        ends = np.flatnonzero(np.diff(values[QUERIES][order])) + 1
        lists = [
            (values["score"][own].astype(np.float64), values[GRADES][own])
            for own in np.split(order, ends)
        ]
        relevant = [item for item in lists if item[1].max() > 0]
        grades = [dict(enumerate(item[1].tolist())) for item in relevant]
        ranked = [(scores, score_error(scores, self.dtype)) for scores, _ in relevant]
        table = ranking_scores(ranked, grades)
        means = table.mean(0).tolist() if len(table) else [0.0] * len(RANKING_NAMES)
        found = dict(zip(RANKING_NAMES, means, strict=True))
        spearman = correlations(values["score"], values["label"])["spearman"]
        return {**{name: found[name] for name in METRICS}, "spearman": spearman}

    @override
    def reported(
        self,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[Any],
        numbers: Sequence[int],
    ) -> "Iterator[Prediction]":
        """Yield a row of each query with a relevant text, as ``zoo eval`` joins its texts."""
        if PAIRS not in predictions:  # in a distillation without the task's loss
            return
        pairs, first = np.unique(predictions[PAIRS], return_index=True)
        texts = [(sample, text) for sample in samples for text in sample.documents]
        by_query: dict[str, list[int]] = {}
        for place, pair in enumerate(pairs.tolist()):
            by_query.setdefault(texts[pair][0].text, []).append(place)
        for query, places in by_query.items():
            grades = predictions[GRADES][first[places]]
            scores = predictions["score"][first[places]].astype(np.float64)
            if grades.max() > 0:
                own = [texts[pairs[place]] for place in places]
                documents = tuple(text for _, text in own)
                item = TextList(query, documents, tuple(grades.tolist()), own[0][0].location)
                yield ranked_row(item, (scores, score_error(scores, self.dtype)))

    @override
    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        fields: dict[str, Any] = {}
        if self.kind != "cross-entropy":
            fields["score_activation"] = self.declared.activation
        return {"model": TrainedModel(model, self.config, self.head, fields=fields)}


def pad_lists(
    scores: "Tensor", labels: "Tensor", lists: "Tensor"
) -> "tuple[Tensor, Tensor, Tensor]":
    """Return scores and labels of pairs, (pairs,), as (lists, texts), and which ones are there."""
    # lists: number of the list of each pair, in order, (pairs,)
    sizes = torch.bincount(lists)
    present = torch.arange(int(sizes.max()), device=lists.device) < sizes[:, None]
    padded = [
        values.new_zeros(present.shape).masked_scatter(present, values)
        for values in (scores, labels.to(scores.dtype))
    ]
    return padded[0], padded[1], present


def _grades(sample: TextList, kind: Kind) -> Sequence[float]:
    """Return the relevance of texts: their labels, or 1 for the text before its negatives."""
    if kind != "margin-mse":
        return sample.labels
    return (1.0, *[0.0] * (len(sample.documents) - 1))
