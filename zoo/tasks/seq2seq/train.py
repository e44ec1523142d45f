"""Sequence-to-sequence tasks: a target text for a source text, of one data set or several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from blake3 import blake3
from torch.nn import functional as F

from zoo.adapters.registry import parse_adapter
from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.text_io import split_name
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import UsageError
from zoo.families.base import DECODER_TOKENS
from zoo.finetuning.base import LABELS, FineTuning
from zoo.finetuning.order import ProportionalMixture
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, tokenize
from zoo.inference.generation.config import (
    GenerationConfig,
    cap_new_tokens,
    generation_config,
    token_ids,
)
from zoo.inference.generation.generate import generate
from zoo.inference.generation.languages import target_settings, target_tokenizer
from zoo.io.limits import MAX_NEW_TOKENS, MAX_ROW_TOKENS
from zoo.metrics.classification import accuracy
from zoo.metrics.generated_labels import NO_LABEL, GeneratedLabels, number_of
from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.losses.predictions import cross_entropy_sum, predict_at
from zoo.objectives.options import Options
from zoo.objectives.seq2seq import SEQ2SEQ_LM
from zoo.overrides import override
from zoo.plugins import get_family
from zoo.tasks.seq2seq.choices import (
    LENGTH_NORMALIZED,
    UNLIKELIHOOD,
    ChoiceLosses,
    Choices,
    for_each_choice,
)
from zoo.tasks.seq2seq.data import dataset_names, iter_text_to_text, review_target
from zoo.tasks.seq2seq.text_forms import TextForm, form_of, glue_tables
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.evaluation.base import Prediction
    from zoo.families.base import Family

# values of a row: its data set, the hash of its target, the number that the target is of
DATASET, TARGET, NUMBER = "dataset", "target", "number"
PREDICTION, PREDICTED_NUMBER = "prediction", "predicted_number"
# the beginning of a generated text as bytes, for reports: predictions are tensors
SHOWN, SHOWN_BYTES = "shown", 400
CHOICE, MAX_CHOICES = "choice", 64  # number of the target among those that are compared


class Seq2SeqOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``Seq2Seq``."""

    max_target_len: int | None = None  # tokens; by default ``max_seq_len``
    generate: bool = True  # targets in evaluations, which otherwise only have the loss
    num_beams: int | None = None  # by default the model's setting
    max_new_tokens: int | None = None  # default: the model's, or the longest target's length
    # weight of the loss that a target is the most likely of all targets, for its length
    mc_loss: float = 0.0
    # weight of the loss that the tokens of the other targets are unlikely
    unlikely_loss: float = 0.0
    label_smoothing_factor: float = 0.0  # weight of the uniform distribution in training targets
    src_lang: str | None = None  # language of the sources; by default the tokenizer's
    # language of the targets; by default that of the settings of generation, or of the sources
    tgt_lang: str | None = None

    def __post_init__(self) -> None:
        for name in ("mc_loss", "unlikely_loss"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, not a number from 0")
        if not 0 <= self.label_smoothing_factor < 1:
            raise ValueError(
                f"label_smoothing_factor is {self.label_smoothing_factor}, not from 0 to 1"
            )
        if self.max_target_len is not None and not 1 <= self.max_target_len <= MAX_ROW_TOKENS:
            raise ValueError(f"max_target_len is {self.max_target_len}, not 1 to {MAX_ROW_TOKENS}")


class Seq2Seq(FineTuning):
    """Cross-entropy of the tokens of the target, its end-of-sequence token included."""

    # The decoder's input is the target shifted right, after ``decoder_start_token_id``. An
    # evaluation also generates the targets, as ``zoo run seq2seq`` does: ``exact_match`` is the
    # fraction of samples whose generated text equals the target, except for white space around it.
    # ``accuracy`` is the fraction of target tokens that are predicted from the tokens before them.

    name: ClassVar[str] = "seq2seq"
    head: ClassVar[str] = SEQ2SEQ_LM
    varying_outputs: ClassVar[str] = (
        "which has logits of all tokens for each token of a target; the recipe sequence has the "
        "teacher write the targets once"
    )
    options_type: ClassVar[type[Options]] = Seq2SeqOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.run.fsdp and self.options.generate:
            raise UsageError(
                "evaluations with fsdp do not generate", "--set task_args.generate=false"
            )
        self._longest_target = 1
        self._choices: Choices | None = None  # set when the training data are tokenized
        self._tokenizer: TextTokenizer | None = None
        self._teacher_family: Family | None = None

    @property
    @override
    def default_metric(self) -> str:  # type: ignore[override]
        """``exact_match``, or the metric of the only data set; the loss without generation."""
        if not self.options.generate:
            return "loss"
        forms = [self.form(name, self.run.data) for name in self.datasets]
        if len(forms) == 1 and forms[0].default_metric is not None:
            return forms[0].default_metric
        return "exact_match"

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        factors = {
            LENGTH_NORMALIZED: self.options.mc_loss,
            UNLIKELIHOOD: self.options.unlikely_loss,
        }
        return {self.name: 1.0, **{name: factor for name, factor in factors.items() if factor}}

    @property
    @override
    def scored_terms(self) -> tuple[str, ...]:
        return (self.name,)

    @classmethod
    def form(cls, name: str, data: TableConfig) -> TextForm:
        """Return the form of a data set."""
        columns = Columns(data.text, data.label_column, data.pair)
        return form_of(name, columns, data.prefix, data.pair_prefix)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets; one empty name for a single one."""
        return dataset_names(self.run.data.train)

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        """Metrics, or with several data sets ``METRIC_NAME`` of each."""
        if not self.options.generate:
            return ("accuracy",)
        parts = [metric for name in self.datasets for metric in self._metrics_of(name)]
        return ("accuracy", *dict.fromkeys(("exact_match", *parts)))

    def _metrics_of(self, name: str) -> list[str]:
        """Return the names of the metrics of a data set."""
        metrics = ("exact_match", *self.form(name, self.run.data).metrics)
        return [self._metric_name(metric, name) for metric in metrics]

    def _metric_name(self, metric: str, dataset: str) -> str:
        return f"{metric}_{dataset}" if len(self.datasets) > 1 else metric

    @override
    def metrics_of(self, samples: Sequence[Any]) -> Sequence[str]:
        present = {sample.dataset for sample in samples}
        missing = [name for name in self.datasets if name not in present]
        absent = {metric for name in missing for metric in self._metrics_of(name)}
        return [name for name in self.metric_names if name not in absent]

    @classmethod
    @override
    def locate(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace directories of GLUE by tables; evaluate on its tables if all data are GLUE."""
        train, evaluation = (list(data.get(key) or ()) for key in ("train", "eval"))
        tables = glue_tables(train, "train")
        if not evaluation and tables and not set(tables) & set(train):
            evaluation = train
        return {**data, "train": tables, "eval": glue_tables(evaluation, "dev")}

    @classmethod
    @override
    def files(cls, paths: Sequence[str]) -> list[str]:
        return [split_name(path)[1] for path in paths]

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        if data.pair is None and data.pair_prefix is not None:
            raise UsageError("data.pair_prefix is text before a second text", "name its column")
        names = dataset_names(data.train)
        return list(iter_text_to_text(paths, lambda name: cls.form(name, data), names, problems))

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        return review_target(sample)

    @classmethod
    @override
    def texts(cls, sample: Any) -> list[str]:
        return [sample.source, sample.target]

    @classmethod
    @override
    def adapt_tokenizer(
        cls, run: FineTuneConfig, tokenizer: ExistingTokenizer | None
    ) -> ExistingTokenizer | None:
        """Put the language of the sources at texts."""
        language = run.task_args.get("src_lang")
        if language is None or tokenizer is None:
            return tokenizer
        return tokenizer.in_language(str(language))

    @override
    def generation_changes(self, tokenizer: TextTokenizer) -> dict[str, Any]:
        language = self.options.tgt_lang
        return {} if language is None else target_settings(tokenizer, language)

    @override
    def target(self, sample: Any) -> Any:
        """Return the hash of the target's text, int64."""
        return text_key(sample.target)

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        limit, longest = self.run.max_seq_len, self._target_limit()
        self._tokenizer = tokenizer
        locations = [sample.location for sample in samples]
        sources = tokenize(
            [s.source for s in samples], tokenizer, self.inputs, limit, locations=locations
        )
        targets = tokenize(
            [s.target for s in samples],
            target_tokenizer(tokenizer, self.generation_defaults),
            (LABELS,),
            longest,
            locations=locations,
        )
        last = targets.arrays[LABELS][targets.starts[1:] - 1]
        if self._eos is None or not (last == self._eos).all():
            raise UsageError(
                f"the tokenizer ends texts with {tokenizer.token(int(last[0]))}, not with an "
                "end-of-sequence token, and generation would never end",
                "choose another model or --tokenizer",
            )
        counts = np.diff(targets.starts)
        self._longest_target = max(self._longest_target, int(counts.max()))
        truncated = sources.truncated + targets.truncated
        numbers = {name: number for number, name in enumerate(self.datasets)}
        keys = np.array([self.target(s) for s in samples], np.int64)
        values: dict[str, NDArray[Any]] = {
            DATASET: np.array([numbers[s.dataset] for s in samples], np.int64),
            TARGET: keys,
            NUMBER: np.array([s.number for s in samples], np.float32),
        }
        of_terms: dict[str, NDArray[Any]] = {self.name: counts}
        if len(self.loss_weights) > 1:
            if self._choices is None:
                self._choices = self._make_choices(keys, targets)
            values[CHOICE] = self._choices.number_of(keys)
            of_choices = self._choices.counts(values[CHOICE])
            of_terms |= {name: of_choices[name] for name in self.loss_weights if name != self.name}
        return TokenizedRows(
            sources.starts, sources.arrays, values, of_terms, truncated, others=(targets,)
        )

    def _make_choices(self, keys: "NDArray[np.int64]", targets: TokenizedTexts) -> Choices:
        distinct, first = np.unique(keys, return_index=True)
        if not 2 <= len(distinct) <= MAX_CHOICES or len(self.datasets) > 1:
            raise UsageError(
                f"the training data have {len(distinct)} distinct targets of {len(self.datasets)} "
                f"data sets, and task_args.mc_loss and unlikely_loss compare 2 to {MAX_CHOICES} of "
                "one",
                "leave them out",
            )
        starts, ids = targets.starts, targets.arrays[LABELS]
        return Choices(distinct, [ids[starts[k] : starts[k + 1]] for k in first])

    def _target_limit(self) -> int:
        """Return the number of tokens that targets are cut to."""
        most = self._decoder_limit
        for name in ("max_target_len", "max_new_tokens"):
            chosen = getattr(self.options, name)
            if most is not None and chosen is not None and chosen > most:
                raise UsageError(
                    f"task_args.{name} is {chosen}, and the decoder takes {most} tokens", "lower it"
                )
        limit = self.options.max_target_len or self.run.max_seq_len
        return limit if most is None else min(limit, most)

    @property
    def _family(self) -> "Family":
        return self._teacher_family or get_family(self.run.family)

    @property
    def _decoder_limit(self) -> int | None:
        limits = self._family.onnx(self.config, self.head).limits
        if self.run.adapter is not None:
            limits = parse_adapter(self.run.adapter).shortened(limits)
        return limits.get(DECODER_TOKENS)

    def generate_as(self, other: "Seq2Seq", family: "Family", tokenizer: TextTokenizer) -> None:
        """Prepare a teacher to generate targets as long as the task of its student does."""
        self._longest_target, self._tokenizer = other._longest_target, tokenizer
        self._teacher_family = family

    @property
    def _eos(self) -> int | None:
        assert self._tokenizer is not None, "set when rows are tokenized"
        return self._tokenizer.role_id("eos")

    @property
    def generation(self) -> GenerationConfig:
        """Settings of generation."""
        most = self.options.max_new_tokens
        if most is None and not {"max_new_tokens", "max_length"} & self.generation_defaults.keys():
            most = min(self._longest_target, MAX_NEW_TOKENS)
        chosen = {"max_new_tokens": most, "num_beams": self.options.num_beams}
        settings = generation_config(
            self.generation_defaults, {**chosen, "num_return_sequences": 1}
        )
        return cap_new_tokens(settings, self._decoder_limit)

    @override
    def train_order(self, rows: TokenizedRows) -> ProportionalMixture:
        limit, seed = self.run.data.mixing_limit, self.run.seed
        return ProportionalMixture(rows.values[DATASET], limit, seed)

    @override
    def masks(self) -> dict[str, str | None]:
        # the decoder is causal, so that its padding needs no mask
        return {**super().masks(), LABELS: None}

    @override
    def padding(self) -> dict[str, int]:
        return {**super().padding(), LABELS: IGNORED}

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the tokens of all targets, (target tokens, vocabulary)."""
        module: Any = model
        labels = batch[LABELS]
        source = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
        source = with_prompt(module, source)
        _, hidden = module.hidden(
            source["input_ids"], source.get("attention_mask"), self.shift_right(labels)
        )
        positions = (labels.flatten() != IGNORED).nonzero().squeeze(-1)
        outputs = {self.name: predict_at(module, hidden, positions)}
        if self._choices is not None and CHOICE in batch:
            chosen = batch[CHOICE]
            labels, rows = self._choices.labels.to(chosen.device), len(chosen)
            repeated, targets = for_each_choice(source, len(labels)), labels.repeat(rows, 1)
            _, hidden = module.hidden(
                repeated["input_ids"], repeated.get("attention_mask"), self.shift_right(targets)
            )
            logits = at_least_float32(module.scores(hidden)).flatten(0, 1)
            losses = F.cross_entropy(
                logits, targets.flatten(), ignore_index=IGNORED, reduction="none"
            )
            sums = ChoiceLosses.of(losses.view(rows, *labels.shape), labels, chosen)._asdict()
            outputs |= {name: sums[name] for name in self.loss_weights if name != self.name}
        return Outputs(outputs)

    @override
    def loss_with_auxiliary(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        output = self.loss(outputs, batch)
        sums = {name: total for name, total in outputs.logits.items() if name != self.name}
        return replace(output, sums={**output.sums, **sums})

    def shift_right(self, labels: "Tensor") -> "Tensor":
        """Return the decoder's input for labels, both (rows, tokens)."""
        start: int = self.config.decoder_start_token_id  # type: ignore[attr-defined]
        shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == IGNORED, self.pad_id)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        labels = batch[LABELS]
        # evaluations have the plain loss
        smoothing = self.options.label_smoothing_factor if torch.is_grad_enabled() else 0.0
        return cross_entropy_sum(
            outputs.logits[self.name],
            labels[labels != IGNORED],
            self.name,
            label_smoothing=smoothing,
        )

    @override
    def generated_predictions(
        self, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        """Return the hashes of the generated targets, and the numbers that they are."""
        if not self.options.generate:
            return {}
        texts = self.generate(model, batch)
        return {
            PREDICTION: torch.tensor([text_key(text) for text in texts]),
            PREDICTED_NUMBER: torch.tensor(list(map(number_of, texts)), dtype=torch.float64),
            SHOWN: torch.stack([encode_shown(text) for text in texts]),
            **{name: batch[name] for name in (TARGET, NUMBER, DATASET)},
        }

    @override
    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        return {
            "location": sample.location,
            "text": sample.source,
            "label": sample.target,
            "prediction": bytes(values[SHOWN]).rstrip(b"\0").decode(errors="ignore").strip(),
            "correct": bool(values[PREDICTION] == values[TARGET]),
        }

    def generate(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> list[str]:
        """Return the texts that are generated for the sources."""
        # Products are in float32, as in ``zoo run``, whatever the precision of the run is.
        module: Any = model
        assert self._tokenizer is not None, "set when rows are tokenized"
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
        settings, size = self.generation, self.config.vocab_size
        start = settings.decoder_start_token_id
        if start is None:
            start = self.config.decoder_start_token_id  # type: ignore[attr-defined]
        inputs["decoder_input_ids"] = torch.full_like(inputs["input_ids"][:, :1], start)
        ends = [token for token in token_ids(settings.eos_token_id) if token < size]
        ends = ends or [*token_ids(self._eos)]
        with torch.autocast(batch["input_ids"].device.type, enabled=False):
            generated = generate(
                module,
                inputs,
                settings,
                eos_token_ids=ends,
                logits_processor=self._family.logits_processors(self.config, self.head),
            )
        return [self._tokenizer.decode(tokens) for tokens in generated]

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """Return the exact match of all samples, and the metrics of each data set that has some."""
        if not predictions:
            return {}
        metrics = {"exact_match": accuracy(predictions[PREDICTION], predictions[TARGET])}
        for number, name in enumerate(self.datasets):
            rows = predictions[DATASET] == number
            if rows.any():
                part = {key: values[rows] for key, values in predictions.items()}
                for metric, value in form_metrics(self.form(name, self.run.data), part).items():
                    metrics[self._metric_name(metric, name)] = value
        return metrics


def encode_shown(text: str) -> "Tensor":
    """Return what reports show of a text, (SHOWN_BYTES,), uint8: processes gather tensors."""
    content = text.strip().encode(errors="replace")[:SHOWN_BYTES]
    return torch.frombuffer(bytearray(content.ljust(SHOWN_BYTES, b"\0")), dtype=torch.uint8)


def form_metrics(form: TextForm, values: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
    """Return the metrics of a data set."""
    numbers = {text_key(word): number for number, word in enumerate(form.words.values())}
    words = {
        name: np.array([numbers.get(key, NO_LABEL) for key in values[name].tolist()])
        for name in (TARGET, PREDICTION)
    }
    labels = GeneratedLabels(
        words[TARGET], words[PREDICTION], values[NUMBER], values[PREDICTED_NUMBER]
    )
    exact = accuracy(values[PREDICTION], values[TARGET])
    return {"exact_match": exact, **labels.metrics(form.metrics, form.classes)}


def text_key(text: str) -> int:
    """Return a signed 64-bit hash of the stripped text."""
    digest = blake3(text.strip().encode()).digest(8)
    return int.from_bytes(digest, signed=True)
