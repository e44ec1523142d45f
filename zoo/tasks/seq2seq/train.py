"""Sequence-to-sequence tasks: a target text for a source text, of one data set or several.

The loss is the cross-entropy of the tokens of the target, its end-of-sequence token included; the
decoder's input is the target shifted right, after ``decoder_start_token_id``. An evaluation also
generates the targets, as ``zoo run seq2seq`` does: ``exact_match`` is the fraction of samples whose
generated text equals the target, except for white space around it. ``accuracy`` is the fraction of
target tokens that are predicted from the tokens before them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from blake3 import blake3
from torch.nn import functional as F

from zoo.adapted_models.registry import parse_adapter
from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.text_io import split_name
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import UsageError
from zoo.families.base import DECODER_TOKENS
from zoo.finetuning.order import ProportionalMixture
from zoo.finetuning.rows import TokenizedRows, tokenize
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskData,
    TaskInputs,
    TaskLoss,
    TaskModel,
)
from zoo.finetuning.text_statistics import statistics_key, text_statistics
from zoo.inference.generation.config import (
    GenerationConfig,
    cap_new_tokens,
    generation_config,
    token_ids,
)
from zoo.inference.generation.generate import generate
from zoo.inference.generation.languages import target_settings, target_tokenizer
from zoo.inference.results import EvaluationResults, Prediction, ResultContext
from zoo.io.limits import MAX_NEW_TOKENS, MAX_ROW_TOKENS
from zoo.metrics import Metric, MetricInput
from zoo.metrics.classification import accuracy
from zoo.metrics.generated_labels import NO_LABEL, GeneratedLabels, number_of
from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.losses.predictions import cross_entropy_sum, labelled_rows, predict_at
from zoo.objectives.options import Options
from zoo.objectives.seq2seq import SEQ2SEQ_LM
from zoo.overrides import override
from zoo.tasks.seq2seq.choices import (
    LENGTH_NORMALIZED,
    UNLIKELIHOOD,
    ChoiceLosses,
    Choices,
    for_each_choice,
)
from zoo.tasks.seq2seq.data import (
    TextToText,
    dataset_names,
    iter_text_to_text,
    review_target,
)
from zoo.tasks.seq2seq.text_forms import TextForm, form_of, glue_tables
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

# Values of a row: its data set, the hash of its target, and the number that the target is.
DATASET = "dataset"
TARGET = "target"
NUMBER = "number"
CHOICE = "choice"  # The number of the target among those that are compared.
SAMPLE = "sample"  # The number of the sample in its split, where metrics need all its targets.
PREDICTION = "prediction"
PREDICTED_NUMBER = "predicted_number"
# The beginning of a generated text as bytes, for reports: predictions are tensors.
SHOWN = "shown"
SHOWN_BYTES = 400
MAX_CHOICES = 64
ENCODER_INPUTS = ("input_ids", "attention_mask")


class Seq2SeqTaskOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of sequence-to-sequence tasks."""

    max_target_len: int | None = None  # Tokens of a target; by default ``max_seq_len``.
    generate: bool = True  # Generate targets in evaluations, which otherwise only have the loss.
    num_beams: int | None = None  # Number of beams; by default the model's setting.
    max_new_tokens: int | None = None  # Default: the model's, or the longest target's length.
    # Weight of the loss that a target is the most likely of all targets, for its length.
    mc_loss: float = 0.0
    # Weight of the loss that the tokens of the other targets are unlikely.
    unlikely_loss: float = 0.0
    label_smoothing_factor: float = 0.0  # Weight of the uniform distribution in training targets.
    src_lang: str | None = None  # Language of the sources; by default the tokenizer's.
    # Language of the targets; by default that of the settings of generation, or of the sources.
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


def text_form(name: str, table: TableConfig) -> TextForm:
    """Return the form of a data set."""
    columns = Columns(table.text, table.label_column, table.pair)
    return form_of(name, columns, table.prefix, table.pair_prefix)


def run_context(context: ResultContext) -> TaskContext:
    """Return the context of a run."""
    assert isinstance(context, TaskContext), "texts are generated with the options of a run"
    return context


def datasets(context: TaskContext) -> tuple[str, ...]:
    """Return the names of the data sets; one empty name for a single one."""
    return dataset_names(context.settings.data.train)


def end_token(context: TaskContext) -> int | None:
    """Return the token that ends texts."""
    return context.tokenizer.role_id("eos")


class TextToTextData(TaskData[TextToText]):
    """Sources and targets, of one data set or several."""

    reads_names: ClassVar[bool] = True

    @override
    def find_dataset_files(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace directories of GLUE by tables; evaluate on its tables if all data are GLUE."""
        train = list(data.get("train") or ())
        evaluation = list(data.get("eval") or ())
        tables = glue_tables(train, "train")
        if not evaluation and tables and not set(tables) & set(train):
            evaluation = train
        return {**data, "train": tables, "eval": glue_tables(evaluation, "dev")}

    @override
    def data_paths(self, paths: Sequence[str]) -> list[str]:
        return [split_name(path)[1] for path in paths]

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[TextToText]:
        if table.pair is None and table.pair_prefix is not None:
            raise UsageError("data.pair_prefix is text before a second text", "name its column")
        names = dataset_names(table.train)
        return list(iter_text_to_text(paths, lambda name: text_form(name, table), names, problems))

    @override
    def texts(self, sample: TextToText) -> list[str]:
        return [sample.source, sample.target]

    @override
    def review(self, sample: TextToText, table: TableConfig) -> Reviewed:
        return review_target(sample)

    @override
    def target(self, context: TaskContext, sample: TextToText) -> int:
        """Return the hash of the target's text, int64."""
        return text_key(sample.target)


class Seq2SeqModel(TaskModel):
    """An encoder-decoder, with languages of sources and targets."""

    @override
    def adapt_tokenizer(
        self, settings: FineTuneConfig, tokenizer: ExistingTokenizer | None
    ) -> ExistingTokenizer | None:
        """Put the language of the sources at texts."""
        language = settings.task_args.get("src_lang")
        if language is None or tokenizer is None:
            return tokenizer
        return tokenizer.in_language(str(language))

    @override
    def generation_changes(self, options: Any, tokenizer: TextTokenizer) -> dict[str, Any]:
        if options.tgt_lang is None:
            return {}
        return target_settings(tokenizer, options.tgt_lang)

    @override
    def require_valid(self, context: TaskContext) -> None:
        if context.settings.fsdp and context.options.generate:
            raise UsageError(
                "evaluations with fsdp do not generate", "--set task_args.generate=false"
            )
        if context.metrics and not context.options.generate:
            raise UsageError(
                f"{next(iter(context.metrics))} is a metric of generated texts, and evaluations "
                "do not generate",
                "leave out task_args.generate",
            )


class Seq2SeqInputs(TaskInputs[TextToText]):
    """Sources, and targets as the decoder's labels."""

    varying_outputs: ClassVar[str] = (
        "which has logits of all tokens for each token of a target; the recipe sequence has the "
        "teacher write the targets once"
    )

    @override
    def auxiliary_weights(self, context: TaskContext) -> Mapping[str, float]:
        """Return the weights of the losses that compare a target with the others."""
        weights = {
            LENGTH_NORMALIZED: context.options.mc_loss,
            UNLIKELIHOOD: context.options.unlikely_loss,
        }
        return {name: weight for name, weight in weights.items() if weight}

    @override
    def training_rows(self, context: TaskContext, samples: Sequence[TextToText]) -> TokenizedRows:
        rows = self._tokenize(context, samples)
        return self._with_choices(context, rows, training_choices(context, rows))

    @override
    def rows(self, context: TaskContext, samples: Sequence[TextToText]) -> TokenizedRows:
        return self._with_choices(context, self._tokenize(context, samples), context.fitted)

    def _tokenize(self, context: TaskContext, samples: Sequence[TextToText]) -> TokenizedRows:
        locations = [sample.location for sample in samples]
        longest = target_limit(context)
        sources = tokenize(
            [sample.source for sample in samples],
            context.tokenizer,
            context.input_names,
            context.max_tokens,
            locations=locations,
        )
        targets = tokenize(
            [sample.target for sample in samples],
            target_tokenizer(context.tokenizer, context.generation),
            (LABELS,),
            longest,
            locations=locations,
        )
        last = targets.arrays[LABELS][targets.starts[1:] - 1]
        end = end_token(context)
        if end is None or not (last == end).all():
            raise UsageError(
                f"the tokenizer ends texts with {context.tokenizer.token(int(last[0]))}, not with "
                "an end-of-sequence token, and generation would never end",
                "choose another model or --tokenizer",
            )
        numbers = {name: number for number, name in enumerate(datasets(context))}
        values: dict[str, NDArray[Any]] = {
            DATASET: np.array([numbers[sample.dataset] for sample in samples], np.int64),
            TARGET: np.array([context.target(sample) for sample in samples], np.int64),
            NUMBER: np.array([sample.number for sample in samples], np.float32),
        }
        if context.metrics or any(sample.alternatives for sample in samples):
            values[SAMPLE] = np.arange(len(samples))
        truncated = sources.truncated + targets.truncated
        return TokenizedRows(
            sources.starts, sources.arrays, values, {}, truncated, others=(targets,)
        )

    def _with_choices(
        self, context: TaskContext, rows: TokenizedRows, choices: Choices | None
    ) -> TokenizedRows:
        """Return rows with the number of the target among those that are compared."""
        if choices is None:
            return rows
        numbers = choices.number_of(rows.values[TARGET])
        counts = choices.counts(numbers)
        return replace(
            rows,
            values={**rows.values, CHOICE: numbers},
            counts={name: counts[name] for name in self.auxiliary_weights(context)},
        )

    @override
    def train_order(self, context: TaskContext, rows: TokenizedRows) -> ProportionalMixture:
        settings = context.settings
        return ProportionalMixture(rows.values[DATASET], settings.data.mixing_limit, settings.seed)

    @override
    def masks(self, context: TaskContext) -> dict[str, str | None]:
        # The decoder is causal, so that its padding needs no mask.
        return {**super().masks(context), LABELS: None}

    @override
    def padding(self, context: TaskContext) -> dict[str, int]:
        return {**super().padding(context), LABELS: IGNORED}

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the logits of the tokens of all targets, (target tokens, vocabulary)."""
        module: Any = model
        labels = batch[LABELS]
        source = with_prompt(
            module, {name: batch[name] for name in ENCODER_INPUTS if name in batch}
        )
        _, hidden = module.hidden(
            source["input_ids"], source.get("attention_mask"), shift_right(context, labels)
        )
        positions = (labels.flatten() != IGNORED).nonzero().squeeze(-1)
        outputs = {context.name: predict_at(module, hidden, positions)}
        # The choices are the student's tokens, which a teacher does not score.
        is_teacher = context.checkpoint is not None
        if context.fitted is not None and CHOICE in batch and not is_teacher:
            sums = self._choice_losses(context, module, source, batch[CHOICE])
            for name in self.auxiliary_weights(context):
                outputs[name] = sums[name]
        return Outputs(outputs)

    def _choice_losses(
        self, context: TaskContext, model: Any, source: "Mapping[str, Tensor]", numbers: "Tensor"
    ) -> "dict[str, Tensor]":
        """Return the sums of the losses that compare each target with the others."""
        choices: Choices = context.fitted
        labels = choices.labels.to(numbers.device)
        rows = len(numbers)
        repeated = for_each_choice(source, len(labels))
        targets = labels.repeat(rows, 1)
        _, hidden = model.hidden(
            repeated["input_ids"], repeated.get("attention_mask"), shift_right(context, targets)
        )
        logits = at_least_float32(model.scores(hidden)).flatten(0, 1)
        losses = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="none")
        return ChoiceLosses.of(losses.view(rows, *labels.shape), labels, numbers)._asdict()


def training_choices(context: TaskContext, rows: TokenizedRows) -> Choices | None:
    """Return the distinct targets of the training data, if a loss compares them."""
    if not context.task.inputs.auxiliary_weights(context):
        return None
    (targets,) = rows.others
    distinct, first = np.unique(rows.values[TARGET], return_index=True)
    names = datasets(context)
    if not 2 <= len(distinct) <= MAX_CHOICES or len(names) > 1:
        raise UsageError(
            f"the training data have {len(distinct)} distinct targets of {len(names)} "
            f"data sets, and task_args.mc_loss and unlikely_loss compare 2 to {MAX_CHOICES} of "
            "one",
            "leave them out",
        )
    ids = targets.arrays[LABELS]
    return Choices(distinct, [ids[targets.starts[k] : targets.starts[k + 1]] for k in first])


def shift_right(context: TaskContext, labels: "Tensor") -> "Tensor":
    """Return the decoder's input for labels, both (rows, tokens)."""
    config: Any = context.config
    start = torch.full_like(labels[:, :1], config.decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORED, context.pad_id)


def decoder_limit(context: TaskContext) -> int | None:
    """Return the largest number of tokens of the decoder, if there is a limit."""
    limits = context.family.onnx(context.config, context.head).limits
    if context.settings.adapter is not None:
        limits = parse_adapter(context.settings.adapter).shortened(limits)
    return limits.get(DECODER_TOKENS)


def target_limit(context: TaskContext) -> int:
    """Return the number of tokens that targets are cut to."""
    most = decoder_limit(context)
    limit: int = context.options.max_target_len or context.max_tokens
    if most is None:
        return limit
    for name in ("max_target_len", "max_new_tokens"):
        tokens = getattr(context.options, name)
        if tokens is not None and tokens > most:
            raise UsageError(
                f"task_args.{name} is {tokens}, and the decoder takes {most} tokens", "lower it"
            )
    return min(limit, most)


def longest_target(context: TaskContext) -> int:
    """Return the number of tokens of the longest target of the data."""
    longest = 1
    for split in (context.train, context.evaluation):
        if split is not None:
            (targets,) = split.rows.others
            longest = max(longest, int(np.diff(targets.starts).max()))
    return longest


class TargetCrossEntropy(TaskLoss):
    """Cross-entropy of the tokens of targets."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def fit(self, context: TaskContext, rows: TokenizedRows) -> Choices | None:
        return training_choices(context, rows)

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> "Mapping[str, NDArray[Any]]":
        (targets,) = rows.others
        return {context.name: np.diff(targets.starts)}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        labels = batch[LABELS]
        smoothing = 0.0
        if torch.is_grad_enabled():  # Evaluations have the plain loss.
            smoothing = context.options.label_smoothing_factor
        return cross_entropy_sum(
            outputs.logits[context.name],
            labels[labels != IGNORED],
            context.name,
            labelled_rows(batch, labels != IGNORED),
            label_smoothing=smoothing,
        )


class GeneratedTextResults(EvaluationResults[TextToText]):
    """Exact match of generated texts, and the metrics of data sets."""

    @property
    @override
    def metric_input(self) -> MetricInput | None:
        return "texts"

    @override
    def metric_statistics(
        self, name: str, metric: Metric, predictions: "Mapping[str, NDArray[Any]]"
    ) -> "NDArray[Any]":
        return predictions[statistics_key(name)]

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        """Return the metrics, or with several data sets ``METRIC_NAME`` of each."""
        run = run_context(context)
        if not run.options.generate:
            return ("accuracy",)
        names = ["accuracy", "exact_match"]
        for name in datasets(run):
            names += self._dataset_metrics(run, name)
        return tuple(dict.fromkeys(names))

    def _dataset_metrics(self, context: TaskContext, name: str) -> list[str]:
        """Return the names of the metrics of a data set."""
        form = text_form(name, context.settings.data)
        metrics = ("exact_match", *form.metrics)
        return [self._metric_name(context, metric, name) for metric in metrics]

    def _metric_name(self, context: TaskContext, metric: str, dataset: str) -> str:
        if len(datasets(context)) > 1:
            return f"{metric}_{dataset}"
        return metric

    @override
    def default_metric(self, context: ResultContext) -> str:
        """Return ``exact_match``, or the metric of the only data set; the loss without texts."""
        run = run_context(context)
        if not run.options.generate:
            return "loss"
        names = datasets(run)
        if len(names) == 1:
            form = text_form(names[0], run.settings.data)
            if form.default_metric is not None:
                return form.default_metric
        return "exact_match"

    @override
    def available_metrics(
        self, context: ResultContext, samples: Sequence[TextToText]
    ) -> Sequence[str]:
        run = run_context(context)
        present = {sample.dataset for sample in samples}
        absent_metrics = set[str]()
        for name in datasets(run):
            if name not in present:
                absent_metrics.update(self._dataset_metrics(run, name))
        return [name for name in self.metric_names(context) if name not in absent_metrics]

    @override
    def generate(
        self, context: ResultContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        """Return the hashes of the generated targets, and the numbers that they are."""
        run = run_context(context)
        if not run.options.generate:
            return {}
        texts = generate_texts(run, model, batch)
        predictions = {
            PREDICTION: torch.tensor([text_key(text) for text in texts]),
            PREDICTED_NUMBER: torch.tensor(list(map(number_of, texts)), dtype=torch.float64),
            SHOWN: torch.stack([encode_shown(text) for text in texts]),
            **{name: batch[name] for name in (TARGET, NUMBER, DATASET)},
        }
        if SAMPLE in batch:
            assert run.evaluation is not None, "texts are generated for evaluation data"
            samples = [run.evaluation.samples[number] for number in batch[SAMPLE].tolist()]
            predictions[PREDICTION] = prediction_keys(texts, samples)
            references = [sample.references for sample in samples]
            stripped_texts = [text.strip() for text in texts]
            predictions |= text_statistics(run.metrics, stripped_texts, references)
        return predictions

    @override
    def mistake(self, row: Prediction) -> float | None:
        """Return the loss of the target, which runs lack, if another text was generated."""
        if row["correct"]:
            return None
        loss: float = row.get("loss", 1.0)
        return loss

    @override
    def row(
        self, context: ResultContext, sample: TextToText, values: Mapping[str, Any]
    ) -> Prediction:
        text = bytes(values[SHOWN]).rstrip(b"\0").decode(errors="ignore")
        return {
            "location": sample.location,
            "text": sample.source,
            "label": sample.label,
            "prediction": text.strip(),
            "correct": bool(values[PREDICTION] == values[TARGET]),
        }

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        """Return the exact match of all samples, and the metrics of each data set that has some."""
        if not predictions:
            return {}
        run = run_context(context)
        metrics = {"exact_match": accuracy(predictions[PREDICTION], predictions[TARGET])}
        for number, name in enumerate(datasets(run)):
            is_in_dataset = predictions[DATASET] == number
            if not is_in_dataset.any():
                continue
            dataset_values = {key: v[is_in_dataset] for key, v in predictions.items()}
            form = text_form(name, run.settings.data)
            for metric, value in form_metrics(form, dataset_values).items():
                metrics[self._metric_name(run, metric, name)] = value
        return metrics


def run_generation_config(context: TaskContext) -> GenerationConfig:
    """Return the settings of generation of a run."""
    options = context.options
    max_new_tokens = options.max_new_tokens
    has_length = {"max_new_tokens", "max_length"} & context.generation.keys()
    if max_new_tokens is None and not has_length:
        max_new_tokens = min(longest_target(context), MAX_NEW_TOKENS)
    requested = {
        "max_new_tokens": max_new_tokens,
        "num_beams": options.num_beams,
        "num_return_sequences": 1,
    }
    return cap_new_tokens(generation_config(context.generation, requested), decoder_limit(context))


def generate_texts(
    context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
) -> list[str]:
    """Return the texts that are generated for the sources."""
    # Products are in float32, as in ``zoo run``, whatever the precision of the run is.
    module: Any = model
    config: Any = context.config
    settings = run_generation_config(context)
    inputs = {name: batch[name] for name in ENCODER_INPUTS if name in batch}
    start = settings.decoder_start_token_id
    if start is None:
        start = config.decoder_start_token_id
    inputs["decoder_input_ids"] = torch.full_like(inputs["input_ids"][:, :1], start)
    ends = [token for token in token_ids(settings.eos_token_id) if token < config.vocab_size]
    with torch.autocast(batch["input_ids"].device.type, enabled=False):
        generated = generate(
            module,
            inputs,
            settings,
            eos_token_ids=ends or [*token_ids(end_token(context))],
            logits_processor=context.family.logits_processors(context.config, context.head),
        )
    return [context.tokenizer.targets.decode(tokens) for tokens in generated]


def prediction_keys(texts: Sequence[str], samples: Sequence[TextToText]) -> "Tensor":
    """Return the hash of each text, or of the first target if the text equals another one."""
    keys = []
    for text, sample in zip(texts, samples, strict=True):
        is_correct = sample.is_correct(text.strip())
        keys.append(text_key(sample.target if is_correct else text))
    return torch.tensor(keys)


def encode_shown(text: str) -> "Tensor":
    """Return what reports show of a text, (SHOWN_BYTES,), uint8: processes gather tensors."""
    content = text.strip().encode(errors="replace")[:SHOWN_BYTES]
    return torch.frombuffer(bytearray(content.ljust(SHOWN_BYTES, b"\0")), dtype=torch.uint8)


def form_metrics(form: TextForm, values: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
    """Return the metrics of a data set."""
    numbers = {text_key(word): number for number, word in enumerate(form.words.values())}
    targets = [numbers.get(key, NO_LABEL) for key in values[TARGET].tolist()]
    predictions = [numbers.get(key, NO_LABEL) for key in values[PREDICTION].tolist()]
    labels = GeneratedLabels(
        np.array(targets), np.array(predictions), values[NUMBER], values[PREDICTED_NUMBER]
    )
    exact = accuracy(values[PREDICTION], values[TARGET])
    return {"exact_match": exact, **labels.metrics(form.metrics, form.classes)}


def text_key(text: str) -> int:
    """Return a signed 64-bit hash of the stripped text."""
    digest = blake3(text.strip().encode()).digest(8)
    return int.from_bytes(digest, signed=True)


SEQ2SEQ = FineTuningTask(
    name="seq2seq",
    head=SEQ2SEQ_LM,
    data=TextToTextData(),
    inputs=Seq2SeqInputs(),
    loss=TargetCrossEntropy(),
    results=GeneratedTextResults(),
    model=Seq2SeqModel(),
    options_type=Seq2SeqTaskOptions,
)
