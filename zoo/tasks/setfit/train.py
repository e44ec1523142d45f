"""SetFit: a sentence encoder is trained on pairs, and a logistic regression on its embeddings.

Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", arXiv:2209.11055, section 3.
Every evaluation embeds the training texts and fits the regression, whose weights become the head of
the model. A pair has the similarity 1 if its texts have the same label, and 0 otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from zoo.data.readers.labelled import Sample
from zoo.errors import UsageError
from zoo.finetuning.embeddings.losses.functions import cosine_error
from zoo.finetuning.labelled_texts import LabelledTexts, OneClass
from zoo.finetuning.logistic_regression import LinearClassifier, fit
from zoo.finetuning.rows import TokenizedRows, pad_and_stack, tokenize
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskInputs,
    TaskLoss,
    TaskModel,
    model_inputs,
)
from zoo.finetuning.text_inputs import POOLING
from zoo.inference.results import EvaluationResults, ResultContext
from zoo.metrics.classification import ClassCounts, classification_metrics
from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.setfit.pairs import Pairs, contrastive_pairs, neighbouring_pairs
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.training.state.pretrained import PretrainedInit

SENTENCE_HEAD = "sentence_head"  # A field of the configurations.
POOLINGS = ("mean", "max", "cls")
LENGTHS = "lengths"
SIMILAR = "similar"
VECTORS = "vectors"
FITTED = "fitted"  # Whether the regression is fitted on a row.
COUNTED = "counted"  # Whether the loss counts a row.


class SetFitOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of SetFit; ``None`` takes the checkpoint's setting, if it has one."""

    # Number of pairs with the same label, and of pairs with different labels, of each text.
    num_iterations: int = 20
    c: float = 1.0  # Inverse of the strength of the regression's regularization.
    pooling: str | None = None  # Pooling of the vectors of tokens: ``mean``, ``max`` or ``cls``.
    normalize: bool | None = None  # Scale embeddings to unit length.

    def __post_init__(self) -> None:
        if self.num_iterations < 1:
            raise ValueError(f"num_iterations is {self.num_iterations}, not positive")
        if not 0 < self.c < float("inf"):
            raise ValueError(f"c is {self.c}, not positive")


class SetFitModel(TaskModel):
    """A sentence encoder with a classifier of its embeddings."""

    @override
    def resolve_settings(
        self,
        task: FineTuningTask[Any],
        settings: FineTuneConfig,
        init: "PretrainedInit | None",
    ) -> FineTuneConfig:
        """Take pooling and normalization from the checkpoint where they are not set."""
        checkpoint = None if init is None else init.checkpoints.get("model")
        pretrained_pooling = None if checkpoint is None else checkpoint.model.pooling
        mode = "mean"
        normalize = False
        options = {name: v for name, v in settings.task_args.items() if v is not None}
        if pretrained_pooling is not None:
            mode = pretrained_pooling.mode
            normalize = pretrained_pooling.normalize
            is_readable = not pretrained_pooling.modules and mode in POOLINGS
            if not is_readable and POOLING not in options:
                raise UsageError(
                    "a classifier cannot read the embeddings of this model, which has further "
                    "modules",
                    f"--set task_args.pooling={'|'.join(POOLINGS)}",
                )
        options = {POOLING: mode, "normalize": normalize, **options}
        if options[POOLING] not in POOLINGS:
            raise UsageError(
                f"pooling is {options[POOLING]!r}, not {' or '.join(POOLINGS)}", "name one of them"
            )
        return msgspec.structs.replace(settings, task_args=options)

    @override
    def config_changes(self, settings: FineTuneConfig) -> dict[str, Any]:
        mode = settings.task_args.get(POOLING, "mean")
        head = "unit" if settings.task_args.get("normalize") else "plain"
        return {SENTENCE_HEAD: head, POOLING: None if mode == "cls" else mode}

    @override
    def require_valid(self, context: TaskContext) -> None:
        if context.settings.data.pair is not None:
            raise UsageError(f"{context.name} classifies single texts", "leave out --pair")
        for name in ("ema_decay", "fsdp", "class_weights"):
            if getattr(context.settings, name):
                raise UsageError(f"{context.name} does not support {name}", "leave it out")

    @override
    def trains_all_parameters(self, context: TaskContext) -> bool:
        return False  # The regression sets the head, and the loss does not read it.

    @override
    def finish_evaluation(
        self,
        context: TaskContext,
        model: "nn.Module",
        predictions: "Mapping[str, NDArray[Any]]",
    ) -> None:
        """Make the regression on the training texts the head of the model."""
        module: Any = model
        classifier = fit_classifier(context, predictions)
        with torch.no_grad():
            module.head.weight.copy_(torch.from_numpy(classifier.weight))
            module.head.bias.copy_(torch.from_numpy(classifier.bias))


class PairInputs(TaskInputs[Sample]):
    """Pairs of texts: contrastive ones to train on, and neighbours to evaluate."""

    @override
    def training_rows(self, context: TaskContext, samples: Sequence[Sample]) -> TokenizedRows:
        """Return contrastive pairs of the training texts."""
        labels = np.array([context.target(sample) for sample in samples])
        pairs = contrastive_pairs(labels, context.options.num_iterations, context.settings.seed)
        is_fitted = np.ones(len(samples), bool)
        is_counted = np.ones(len(pairs.first), np.int64)
        return pair_rows(context, samples, labels, pairs, is_fitted, is_counted)

    @override
    def rows(self, context: TaskContext, samples: Sequence[Sample]) -> TokenizedRows:
        """Return the samples and then the training texts, each with the next one."""
        assert context.train is not None, "the training data is tokenized first"
        all_samples = [*samples, *context.train.samples]
        labels = np.array([context.target(sample) for sample in all_samples])
        is_fitted = np.arange(len(all_samples)) >= len(samples)
        pairs = neighbouring_pairs(labels)
        return pair_rows(context, all_samples, labels, pairs, is_fitted, 1 - is_fitted)

    @override
    def collate(
        self, context: TaskContext, examples: Sequence[Example], terms: Sequence[str]
    ) -> Batch:
        """Return a batch whose tensors are (rows, 2, tokens)."""
        lengths = np.stack([row.values[LENGTHS] for row in examples])
        return pad_and_stack(
            examples,
            self.padding(context),
            terms,
            masks=self.masks(context),
            lengths=lengths,
        )

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the embeddings of both texts of each pair, (rows, 2, hidden), float32."""
        encoder: Any = model
        inputs = {
            name: tensor.flatten(0, 1) for name, tensor in model_inputs(context, batch).items()
        }
        hidden = encoder.encode_for_head(**with_prompt(encoder, inputs))
        vectors = at_least_float32(encoder.pooler(hidden))
        return Outputs({context.name: vectors.view(-1, 2, vectors.shape[-1])})


def pair_rows(
    context: TaskContext,
    samples: Sequence[Sample],
    labels: "NDArray[np.integer[Any]]",
    pairs: Pairs,
    is_fitted: "NDArray[np.bool_]",
    is_counted: "NDArray[np.int64]",
) -> TokenizedRows:
    """Return a row for each pair of samples.

    Args:
        context: the run.
        samples: the samples.
        labels: index of the class of each sample, (samples,).
        pairs: the pairs, by the indices of their samples.
        is_fitted: whether the regression is fitted on a sample, (samples,).
        is_counted: 1 if the loss counts a pair and 0 if not, (pairs,).
    """
    indices = [number for pair in zip(pairs.first, pairs.second, strict=True) for number in pair]
    tokens = tokenize(
        [samples[number].text for number in indices],
        context.tokenizer,
        context.input_names,
        context.max_tokens,
        locations=[samples[number].location for number in indices],
    )
    values = {
        LENGTHS: np.diff(tokens.starts).reshape(-1, 2),
        SIMILAR: pairs.similar,
        LABELS: labels[pairs.first],
        FITTED: is_fitted[pairs.first],
        COUNTED: is_counted,
    }
    return TokenizedRows(
        tokens.starts[::2],
        tokens.arrays,
        values,
        {},
        tokens.truncated,
        num_texts=len(indices),
    )


class PairCosineError(TaskLoss):
    """Squared error of the cosine similarity of pairs."""

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        return {context.name: rows.values[COUNTED]}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        """Return the squared error; in an evaluation, of pairs that begin with its samples."""
        vectors = outputs.logits[context.name]
        with torch.autocast(vectors.device.type, enabled=False):
            errors = cosine_error(vectors[:, 0], vectors[:, 1], batch[SIMILAR])
        predictions = {
            VECTORS: vectors[:, 0].detach(),
            LABELS: batch[LABELS],
            FITTED: batch[FITTED],
        }
        return LossOutput({context.name: (errors * batch[COUNTED]).sum()}, predictions=predictions)


class SetFitResults(EvaluationResults[Sample]):
    """Metrics of a regression that is fitted on the embeddings of the training texts."""

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        f1 = "f1" if len(context.labels) == 2 else "f1_macro"
        return ("accuracy", f1, "matthews_correlation")

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        is_evaluated = ~predictions[FITTED].astype(bool)
        logits = fit_classifier(context, predictions).logits(predictions[VECTORS][is_evaluated])
        labels = predictions[LABELS][is_evaluated]
        counts = ClassCounts.of(labels, logits.argmax(-1), len(context.labels))
        return {name: float(value) for name, value in classification_metrics(counts).items()}

    @override
    def group_by_sample(
        self, predictions: "Mapping[str, NDArray[Any]]", count: int
    ) -> "Mapping[str, Sequence[Any]]":
        return {}


def fit_classifier(context: Any, predictions: "Mapping[str, NDArray[Any]]") -> LinearClassifier:
    """Return the regression on the embeddings of the training texts."""
    is_fitted = predictions[FITTED].astype(bool)
    vectors = predictions[VECTORS][is_fitted]
    labels = predictions[LABELS][is_fitted]
    return fit(vectors, labels, len(context.labels), context.options.c)


SETFIT = FineTuningTask(
    name="setfit",
    head="sequence-classification",
    data=LabelledTexts(OneClass()),
    inputs=PairInputs(),
    loss=PairCosineError(),
    results=SetFitResults(),
    model=SetFitModel(),
    options_type=SetFitOptions,
    problem="single_label_classification",
    defaults={
        "batch_size": 16,
        "num_train_epochs": 1.0,
        "warmup_ratio": 0.1,
        "max_seq_len": 256,
        "optimizer": {"learning_rate": 2e-5},
    },
)
