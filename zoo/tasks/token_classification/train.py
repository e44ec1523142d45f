"""Token classification: a label of each word, predicted at its first token."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.finetuning.base import LABELS
from zoo.finetuning.labels import ClassTask, label_index
from zoo.finetuning.layers import Layers, LayerTask
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, tokenize
from zoo.finetuning.windows import (
    TEXTS,
    WINDOW_LENGTHS,
    collate_windows,
    text_windows,
    tokenize_windows,
)
from zoo.inference.processing.windows import Window, select_windows
from zoo.metrics.classification import ClassCounts, accuracy, f1_macro
from zoo.metrics.entities import entities, entity_counts, entity_scores
from zoo.nn.dtypes import at_least_float32
from zoo.nn.layers.crf import IGNORED, crf_negative_log_likelihood, gather_labelled
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.token_classification.data import (
    first_tokens,
    marks_spans,
    read_words,
    repair_samples,
)
from zoo.tasks.token_classification.viterbi import viterbi
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Encoded
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.checkpoint import Checkpoint
    from zoo.evaluation.base import Prediction
    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.training.state.pretrained import PretrainedInit

TRANSITIONS = "transitions"


class TokenOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``TokenClassification``."""

    # label the words of a sentence together, by a linear-chain CRF over the logits; by default
    # where the checkpoint does
    crf: bool | None = None
    layers: Layers | None = None  # the layers that the classifier reads, see ``LayerTask``
    # read texts of more than ``max_seq_len`` tokens in windows that share this number of tokens,
    # and label a word in the window in which it has most context; by default texts are truncated
    doc_stride: int | None = None


class CrfTagger(nn.Module):
    """A token classifier, and the transitions between the labels of words."""

    def __init__(self, tagger: nn.Module, labels: int) -> None:
        super().__init__()
        self.tagger = tagger
        self.transitions = nn.Parameter(torch.zeros(labels + 1, labels + 1))


class TokenClassification(ClassTask, LayerTask):
    """Cross-entropy of each word's label, at its first token (Devlin et al. 2019, sec. 5.3)."""

    # With a CRF, the loss is the negative log-likelihood of all labels of a sentence. Both are sums
    # divided by the number of words, and are equal while the transitions are 0. Spans that begin
    # with ``I-`` are repaired, and labels of other schemes are converted to IOB2; see
    # ``repair_iob``.

    name: ClassVar[str] = "token-classification"
    head: ClassVar[str] = "token-classification"
    varying_outputs: ClassVar[str] = ""
    split_hint: ClassVar[str] = (
        "; files that are neither JSON lines nor Parquet are read as words in columns, with a "
        "blank line after each sentence"
    )
    options_type: ClassVar[type[Options]] = TokenOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.options.crf and (self.run.class_weights is not None or self.run.fsdp):
            setting = "fsdp" if self.run.fsdp else "class_weights"
            raise UsageError(f"a CRF is not trained with {setting}", f"leave {setting} out")
        if self.options.crf and self.options.doc_stride is not None:
            raise UsageError("a CRF is not trained on windows", "leave doc_stride out")

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        """Keep the CRF of a pretrained head."""
        return cls.with_option_of_head(
            run, init, "crf", lambda before: before.model.transitions is not None
        )

    @property
    @override
    def default_metric(self) -> str:  # type: ignore[override]
        """``f1`` of entities, or accuracy where labels mark no spans."""
        return "f1" if marks_spans(self.config.labels) else "accuracy"

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        spans = marks_spans(self.config.labels)
        return ("accuracy", *(("precision", "recall", "f1") if spans else ("f1_macro",)))

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        samples = read_words(paths, Columns(data.text, data.label_column), problems)
        spans = marks_spans(name for sample in samples for name in sample.labels)
        return repair_samples(samples, paths) if spans else samples

    @classmethod
    @override
    def texts(cls, sample: Any) -> list[str]:
        return [" ".join(sample.words)]

    @classmethod
    @override
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        labels: tuple[str, ...] = sample.labels
        return labels

    @classmethod
    @override
    def label_location(cls, sample: Any, number: int) -> str:
        location: str = sample.word_location(number)
        return location

    @override
    def target(self, sample: Any) -> Any:
        """Return the index of each word's label, (words,)."""
        return np.array(
            [
                label_index(name, self.indices, sample.word_location(word))
                for word, name in enumerate(sample.labels)
            ]
        )

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        targets = [self.target(sample) for sample in samples]
        texts = [" ".join(sample.words) for sample in samples]
        limit, locations = self.run.max_seq_len, [sample.location for sample in samples]
        values: dict[str, NDArray[Any]] = {}
        parts: list[NDArray[np.int32]] = []

        def label(row: int, text: Encoded, windows: Sequence[Window] = ()) -> None:
            first = first_tokens(samples[row].words, text.offsets, text.special)
            labels = np.full(len(text.ids), IGNORED, np.int32)
            labels[list(first.values())] = targets[row][list(first)]  # of each word's first token
            selected = select_windows(text, windows)
            parts.extend(
                np.array(window.select(np.where(selected == number, labels, IGNORED).tolist()))
                for number, window in enumerate(windows)
            )
            if not windows:
                parts.append(labels)

        tokens: TokenizedTexts
        if self.options.doc_stride is None:
            tokens = tokenize(texts, tokenizer, self.inputs, limit, locations=locations, read=label)
        else:
            windows = text_windows(self.run, self.options.doc_stride)
            tokens, values[WINDOW_LENGTHS] = tokenize_windows(
                texts, tokenizer, self.inputs, windows, locations=locations, read=label
            )
        labels = np.concatenate(parts, dtype=np.int32)
        self.fix_weights(labels[labels != IGNORED])
        counts = {self.name: np.add.reduceat(self.weigh(labels), tokens.starts[:-1])}
        arrays = {**tokens.arrays, LABELS: labels}
        return TokenizedRows(tokens.starts, arrays, values, counts, tokens.truncated)

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        if WINDOW_LENGTHS not in examples[0].values:
            return super().collate(examples)
        return collate_windows(examples, self.padding(), [self.name], masks=self.masks())

    @override
    def padding(self) -> dict[str, int]:
        return {**super().padding(), LABELS: IGNORED}

    @override
    def model(self, family: "Family", config: "Config") -> nn.Module:
        tagger = super().model(family, config)
        return CrfTagger(tagger, len(config.labels)) if self.options.crf else tagger

    @override
    def models_to_save(self, model: nn.Module) -> dict[str, TrainedModel]:
        """Return the token classifier with its transitions."""
        if not isinstance(model, CrfTagger):
            return super().models_to_save(model)
        fields = {TRANSITIONS: model.transitions}
        return {"model": TrainedModel(model.tagger, self.config, self.head, fields=fields)}

    @override
    def load_checkpoint(self, model: nn.Module, checkpoint: "Checkpoint") -> list[str]:
        if not isinstance(model, CrfTagger):
            return []
        stored = checkpoint.model.transitions
        if stored is None or checkpoint.config.labels != self.config.labels:
            return [TRANSITIONS]
        with torch.no_grad():
            model.transitions.copy_(torch.tensor(stored))
        return []

    @override
    def forward(self, model: nn.Module, batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of all tokens, (rows, tokens, labels), and with a CRF transitions."""
        if not isinstance(model, CrfTagger):
            return super().forward(model, batch)
        outputs = super().forward(model.tagger, batch)
        return Outputs({**outputs.logits, TRANSITIONS: at_least_float32(model.transitions)})

    @override
    def compute_loss(self, model: nn.Module, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the loss; an evaluation of a CRF also finds the best labels."""
        if not isinstance(model, CrfTagger):
            return super().compute_loss(model, batch)
        outputs, labels = self.forward(model, batch), batch[LABELS]
        logits, transitions = outputs.logits[self.name], outputs.logits[TRANSITIONS]
        with torch.autocast(logits.device.type, enabled=False):
            emissions, words = gather_labelled(logits, labels)
            losses = crf_negative_log_likelihood(emissions, words, transitions)
        if model.training:
            return LossOutput({self.name: losses.sum()}, predictions={})
        scored, scores = words != IGNORED, transitions.double().cpu().numpy()
        paths = [
            viterbi(row[mask].double().cpu().numpy(), scores)
            for row, mask in zip(emissions, scored, strict=True)
            if mask.any()
        ]
        best = torch.from_numpy(np.concatenate(paths)) if paths else words[scored]
        predictions = {
            "prediction": best.to(words.device),
            "label": words[scored],
            "begins": _begins(words, None),
        }
        return LossOutput({self.name: losses.sum()}, predictions=predictions)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        logits, labels = outputs.logits[self.name], batch[LABELS]
        weight = self.weights_like(logits)
        flat = logits.flatten(0, 1), labels.flatten()
        loss = F.cross_entropy(*flat, weight=weight, reduction="sum", ignore_index=IGNORED)
        scored = labels != IGNORED
        return LossOutput(
            {self.name: loss},
            predictions={
                "prediction": logits.detach().argmax(-1)[scored],
                "label": labels[scored],
                "begins": _begins(labels, batch.get(TEXTS)),
            },
        )

    @override
    def scored_logits(
        self, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor]":
        # only the first tokens of words are scored
        return {self.name: outputs.logits[self.name][batch[LABELS] != IGNORED]}

    @property
    @override
    def class_labels(self) -> Sequence[str]:
        return ()  # a sentence has many

    @override
    def of_samples(
        self, predictions: "Mapping[str, NDArray[Any]]", count: int
    ) -> "Mapping[str, Sequence[Any]]":
        """Return the labels of each sentence; none if a sentence has no scored word."""
        begins: Any = np.flatnonzero(predictions["begins"]) if predictions else []
        if len(begins) != count:
            return {}
        return {name: np.split(predictions[name], begins[1:]) for name in ("prediction", "label")}

    @override
    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        label, predicted = (
            [self.labels[number] for number in values[name].tolist()]
            for name in ("label", "prediction")
        )
        find: Any = entities if marks_spans(self.labels) else enumerate
        actual, found = set(find(label)), set(find(predicted))
        return {
            "location": sample.location,
            "text": " ".join(sample.words),
            "label": label,
            "prediction": predicted,
            "correct": actual == found,
            "missed": len(actual - found),
            "wrong": len(found - actual),
        }

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """Return the accuracy of words, and precision, recall and F1 of entities or labels."""
        labels, predicted = predictions["label"], predictions["prediction"]
        by_word = accuracy(predicted, labels)
        if not marks_spans(self.labels):
            by_label = ClassCounts.of(labels, predicted, len(self.labels))
            return {"accuracy": by_word, "f1_macro": float(f1_macro(by_label))}
        names = np.array(self.labels, object)
        cuts = np.flatnonzero(predictions["begins"])[1:]
        actual, guessed = (np.split(names[values], cuts) for values in (labels, predicted))
        counts = [
            numbers
            for first, second in zip(actual, guessed, strict=True)
            for numbers in entity_counts(first.tolist(), second.tolist()).values()
        ]
        return {"accuracy": by_word, **entity_scores(counts)}


def _begins(labels: "Tensor", texts: "Tensor | None") -> "Tensor":
    """Return which labelled words are the first of their sentences, (words,), bool."""
    # labels: (rows, tokens), ``IGNORED`` but for the first token of each word
    rows = torch.arange(len(labels), device=labels.device) if texts is None else texts
    sentences = rows[:, None].expand_as(labels)[labels != IGNORED]
    return sentences.diff(prepend=sentences.new_full((1,), -1)) != 0
