"""Training of token classifiers: a label of each word, predicted at its first token.

The loss is the cross-entropy of each word's label (Devlin et al. 2019, sec. 5.3). With a CRF, it is
the negative log-likelihood of all labels of a sentence. Both are sums divided by the number of
words, and are equal while the transitions are 0. Spans that begin with ``I-`` are repaired, and
labels of other schemes are converted to IOB2; see ``repair_iob``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.finetuning.class_losses import (
    ClassWeights,
    count_labels,
    fit_class_weights,
    fitted_weights,
    weigh_labels,
    weight_tensor,
)
from zoo.finetuning.heads import with_option_of_head
from zoo.finetuning.labels import check_class_names, class_warnings, fit_classes, label_index
from zoo.finetuning.rows import TokenizedRows, tokenize
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskData,
    TaskInputs,
    TaskLoss,
    TaskModel,
    TaskSplit,
    model_inputs,
)
from zoo.finetuning.text_inputs import Layers, layer_changes, select_layer
from zoo.finetuning.windows import (
    TEXTS,
    WINDOW_LENGTHS,
    collate_windows,
    text_windows,
    tokenize_windows,
)
from zoo.inference.processing.windows import Window, select_windows
from zoo.nn.dtypes import at_least_float32
from zoo.nn.layers.crf import IGNORED, crf_negative_log_likelihood, gather_labelled
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.losses.predictions import losses_of_rows
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.token_classification.data import (
    WordsSample,
    first_tokens,
    marks_spans,
    read_words,
    repair_samples,
)
from zoo.tasks.token_classification.results import WordResults
from zoo.tasks.token_classification.viterbi import viterbi
from zoo.tokenizers.tokenizer import Encoded
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.checkpoint import Checkpoint
    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.training.state.pretrained import PretrainedInit

TRANSITIONS = "transitions"


class TokenOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of token classification."""

    # Label the words of a sentence together, by a linear-chain CRF over the logits; by default
    # where the checkpoint does.
    crf: bool | None = None
    # The layers that the classifier reads; see ``zoo.finetuning.text_inputs``.
    layers: Layers | None = None
    # Read texts of more than ``max_seq_len`` tokens in windows that share this number of tokens,
    # and label a word in the window in which it has most context; by default texts are truncated.
    doc_stride: int | None = None


class CrfTagger(nn.Module):
    """A token classifier, and the transitions between the labels of words."""

    def __init__(self, tagger: nn.Module, labels: int) -> None:
        super().__init__()
        self.tagger = tagger
        self.transitions = nn.Parameter(torch.zeros(labels + 1, labels + 1))


def word_location(sample: WordsSample, number: int) -> str:
    """Return file and line of a word, counted from 0."""
    return sample.word_location(number)


class WordData(TaskData[WordsSample]):
    """Sentences of labelled words."""

    split_hint: ClassVar[str] = (
        "; files that are neither JSON lines nor Parquet are read as words in columns, with a "
        "blank line after each sentence"
    )

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[WordsSample]:
        samples = read_words(paths, Columns(table.text, table.label_column), problems)
        if marks_spans(name for sample in samples for name in sample.labels):
            return repair_samples(samples, paths)
        return samples

    @override
    def check(self, sample: WordsSample, table: TableConfig) -> WordsSample:
        check_class_names(sample, sample.labels, table, word_location)
        return sample

    @override
    def texts(self, sample: WordsSample) -> list[str]:
        return [" ".join(sample.words)]

    @override
    def review(self, sample: WordsSample, table: TableConfig) -> Reviewed:
        return Reviewed(self.texts(sample), sample.labels, sample.labels)

    @override
    def label_names(self, sample: WordsSample, table: TableConfig) -> tuple[str, ...]:
        return sample.labels

    @override
    def fit_labels(
        self, settings: FineTuneConfig, samples: Sequence[WordsSample], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        names = partial(self.label_names, table=settings.data)
        return fit_classes(settings, samples, names, pretrained, fewest=1)

    @override
    def target(self, context: TaskContext, sample: WordsSample) -> Any:
        """Return the index of each word's label, (words,)."""
        indices = context.label_indices
        return np.array(
            [
                label_index(name, indices, sample.word_location(word))
                for word, name in enumerate(sample.labels)
            ]
        )

    @override
    def warnings(
        self,
        context: TaskContext,
        train: TaskSplit[WordsSample],
        evaluation: TaskSplit[WordsSample],
    ) -> list[str]:
        # F1 of entities does not depend on the labels that the data lacks.
        return class_warnings(
            context.labels,
            train.samples,
            evaluation.samples,
            partial(self.label_names, table=context.settings.data),
            locate=word_location,
            warn_of_absent=not marks_spans(context.labels),
        )


class TaggerModel(TaskModel):
    """A token classifier, with a CRF if the options or the pretrained head have one."""

    @override
    def resolve_settings(
        self,
        task: FineTuningTask[Any],
        settings: FineTuneConfig,
        init: "PretrainedInit | None",
    ) -> FineTuneConfig:
        """Keep the CRF of a pretrained head."""

        def has_transitions(checkpoint: "Checkpoint") -> bool:
            return checkpoint.model.transitions is not None

        return with_option_of_head(settings, init, "crf", task.head, task.problem, has_transitions)

    @override
    def config_changes(self, settings: FineTuneConfig) -> dict[str, Any]:
        return layer_changes(settings)

    @override
    def require_valid(self, context: TaskContext) -> None:
        if not context.options.crf:
            return
        settings = context.settings
        if settings.class_weights is not None or settings.fsdp:
            name = "fsdp" if settings.fsdp else "class_weights"
            raise UsageError(f"a CRF is not trained with {name}", f"leave {name} out")
        if context.options.doc_stride is not None:
            raise UsageError("a CRF is not trained on windows", "leave doc_stride out")

    @override
    def build(self, context: TaskContext, family: "Family", config: "Config") -> nn.Module:
        tagger = super().build(context, family, config)
        if context.options.crf:
            return CrfTagger(tagger, len(config.labels))
        return tagger

    @override
    def prepare(self, context: TaskContext, model: nn.Module) -> None:
        select_layer(model, context.options.layers)

    @override
    def trained_models(self, context: TaskContext, model: nn.Module) -> dict[str, TrainedModel]:
        """Return the token classifier with its transitions."""
        if not isinstance(model, CrfTagger):
            return super().trained_models(context, model)
        fields = {TRANSITIONS: model.transitions}
        return {"model": TrainedModel(model.tagger, context.config, context.head, fields=fields)}

    @override
    def load_checkpoint(
        self, context: TaskContext, model: nn.Module, checkpoint: "Checkpoint"
    ) -> list[str]:
        if not isinstance(model, CrfTagger):
            return []
        transitions = checkpoint.model.transitions
        if transitions is None or checkpoint.config.labels != context.config.labels:
            return [TRANSITIONS]
        with torch.no_grad():
            model.transitions.copy_(torch.tensor(transitions))
        return []


class WordInputs(TaskInputs[WordsSample]):
    """Sentences, with the label of each word at its first token."""

    varying_outputs: ClassVar[str] = ""

    @override
    def rows(self, context: TaskContext, samples: Sequence[WordsSample]) -> TokenizedRows:
        targets = [context.target(sample) for sample in samples]
        texts = [" ".join(sample.words) for sample in samples]
        locations = [sample.location for sample in samples]
        values: dict[str, NDArray[Any]] = {}
        labels: list[NDArray[np.int32]] = []

        def add_labels(row: int, text: Encoded, windows: Sequence[Window] = ()) -> None:
            first = first_tokens(samples[row].words, text.offsets, text.special)
            text_labels = np.full(len(text.ids), IGNORED, np.int32)
            text_labels[list(first.values())] = targets[row][list(first)]
            if not windows:
                labels.append(text_labels)
                return
            selected = select_windows(text, windows)
            for number, window in enumerate(windows):
                window_labels = np.where(selected == number, text_labels, IGNORED)
                labels.append(np.array(window.select(window_labels.tolist())))

        if context.options.doc_stride is None:
            tokens = tokenize(
                texts,
                context.tokenizer,
                context.input_names,
                context.max_tokens,
                locations=locations,
                read=add_labels,
            )
        else:
            tokens, values[WINDOW_LENGTHS] = tokenize_windows(
                texts,
                context.tokenizer,
                context.input_names,
                text_windows(context.settings, context.options.doc_stride),
                locations=locations,
                read=add_labels,
            )
        arrays = {**tokens.arrays, LABELS: np.concatenate(labels, dtype=np.int32)}
        return TokenizedRows(tokens.starts, arrays, values, {}, tokens.truncated)

    @override
    def collate(
        self, context: TaskContext, examples: Sequence[Example], terms: Sequence[str]
    ) -> Batch:
        if WINDOW_LENGTHS not in examples[0].values:
            return super().collate(context, examples, terms)
        padding = self.padding(context)
        return collate_windows(examples, padding, terms, masks=self.masks(context))

    @override
    def padding(self, context: TaskContext) -> dict[str, int]:
        return {**super().padding(context), LABELS: IGNORED}

    @override
    def forward(
        self, context: TaskContext, model: nn.Module, batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the logits of all tokens, (rows, tokens, labels), and with a CRF transitions."""
        tagger = model.tagger if isinstance(model, CrfTagger) else model
        logits = at_least_float32(tagger(**model_inputs(context, batch))["logits"])
        outputs = {context.name: logits}
        if isinstance(model, CrfTagger):
            outputs[TRANSITIONS] = at_least_float32(model.transitions)
        return Outputs(outputs)


class WordCrossEntropy(TaskLoss):
    """Cross-entropy of each word's label, or with a CRF of all labels of a sentence."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def fit(self, context: TaskContext, rows: TokenizedRows) -> ClassWeights | None:
        labels = rows.arrays[LABELS]
        return fit_class_weights(context, labels[labels != IGNORED])

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        weights = weigh_labels(rows.arrays[LABELS], fitted_weights(context))
        return {context.name: np.add.reduceat(weights, rows.starts[:-1])}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        logits = outputs.logits[context.name]
        labels = batch[LABELS]
        if TRANSITIONS in outputs.logits:
            return crf_loss(context.name, logits, batch, outputs.logits[TRANSITIONS])
        cross_entropy = partial(
            F.cross_entropy,
            logits.flatten(0, 1),
            labels.flatten(),
            weight=weight_tensor(context, logits),
            ignore_index=IGNORED,
        )
        loss = cross_entropy(reduction="sum")
        is_scored = labels != IGNORED
        predictions = {
            "prediction": logits.detach().argmax(-1)[is_scored],
            "label": labels[is_scored],
            "begins": _begins(labels, batch.get(TEXTS)),
        }
        compute_losses = partial(cross_entropy, reduction="none")
        return LossOutput(
            {context.name: loss},
            predictions=predictions,
            row_sums=losses_of_rows(batch, context.name, compute_losses),
        )

    @override
    def scored_logits(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor]":
        """Return the logits of the first tokens of words."""
        return {context.name: outputs.logits[context.name][batch[LABELS] != IGNORED]}

    @override
    def count_logits(self, context: TaskContext, batch: Batch, term: str) -> int:
        return count_labels(context, batch, term)


def crf_loss(
    name: str, logits: "Tensor", batch: "Mapping[str, Tensor]", transitions: "Tensor"
) -> LossOutput:
    """Return the negative log-likelihood of labels; in an evaluation, also the best labels.

    Args:
        name: name of the term.
        logits: logits of all tokens, (rows, tokens, labels), float32.
        batch: with labels of words at their first tokens, else ``IGNORED``, (rows, tokens).
        transitions: see ``zoo.nn.layers.crf``.
    """
    labels = batch[LABELS]
    with torch.autocast(logits.device.type, enabled=False):
        emissions, words = gather_labelled(logits, labels)
        losses = crf_negative_log_likelihood(emissions, words, transitions)
    row_sums = losses_of_rows(batch, name, lambda: losses)
    if torch.is_grad_enabled():
        return LossOutput({name: losses.sum()}, row_sums=row_sums)
    is_scored = words != IGNORED
    scores = transitions.double().cpu().numpy()
    paths = list[Any]()
    for row, mask in zip(emissions, is_scored, strict=True):
        if mask.any():
            paths.append(viterbi(row[mask].double().cpu().numpy(), scores))
    best = torch.from_numpy(np.concatenate(paths)) if paths else words[is_scored]
    predictions = {
        "prediction": best.to(words.device),
        "label": words[is_scored],
        "begins": _begins(words, None),
    }
    return LossOutput({name: losses.sum()}, predictions=predictions, row_sums=row_sums)


def _begins(labels: "Tensor", texts: "Tensor | None") -> "Tensor":
    """Return which labelled words are the first of their sentences, (words,), bool.

    ``labels`` are (rows, tokens), ``IGNORED`` but for the first token of each word.
    """
    rows = torch.arange(len(labels), device=labels.device) if texts is None else texts
    sentences = rows[:, None].expand_as(labels)[labels != IGNORED]
    return sentences.diff(prepend=sentences.new_full((1,), -1)) != 0


TOKEN_CLASSIFICATION = FineTuningTask(
    name="token-classification",
    head="token-classification",
    data=WordData(),
    inputs=WordInputs(),
    loss=WordCrossEntropy(),
    results=WordResults(),
    model=TaggerModel(),
    options_type=TokenOptions,
)
