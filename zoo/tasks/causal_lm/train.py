"""Training of causal language models: on documents, or on completions of prompts.

With a column of labels, the texts are prompts, whose tokens count for no loss, and the labels their
completions. Documents longer than ``max_seq_len`` are cut into rows; each token is predicted once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.adapted_models.registry import parse_adapter
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.finetuning.rows import TokenizedRows
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
from zoo.inference.completions import CompletionTokenizer, CompletionTokens
from zoo.inference.generation.config import GenerationConfig, generation_config, token_ids
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo.inference.results import EvaluationResults, Prediction, ResultContext
from zoo.io.limits import MAX_NEW_TOKENS
from zoo.metrics import Metric, MetricInput
from zoo.metrics.likelihood import finite_perplexity
from zoo.nn.adapters.prompt import with_prompt, without_prompt
from zoo.nn.row_chunks import select_rows
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED, summed_cross_entropy
from zoo.objectives.losses.predictions import cross_entropy_sum, labelled_rows, predict_at
from zoo.overrides import override
from zoo.tasks.causal_lm.data import (
    Completion,
    prompt_of,
    read_completions,
    review_completion,
)
from zoo.tasks.causal_lm.predict import Generate
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "causal-lm"
CHUNK = 1024  # Texts that are tokenized together.
SAMPLE = "sample"  # Number of the sample of a row.
SUMS = "sums"  # Predictions: of each row, its loss, and the numbers of correct tokens and of all.


class CompletionData(TaskData[Completion]):
    """Documents, or prompts with their completions."""

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[Completion]:
        if table.pair is not None:
            raise UsageError(f"{NAME} has no second text", "leave out --pair")
        return list(read_completions(paths, table.text, table.label, problems))

    @override
    def texts(self, sample: Completion) -> list[str]:
        return [(sample.prompt or "") + sample.text]

    @override
    def review(self, sample: Completion, table: TableConfig) -> Reviewed:
        return review_completion(sample)

    @override
    def target(self, context: TaskContext, sample: Completion) -> Any:
        """Return the text that is predicted."""
        return sample.text


class CompletionInputs(TaskInputs[Completion]):
    """Tokens, each with the next one as its label; a long document has several rows."""

    varying_outputs: ClassVar[str] = "which has logits of all tokens for each token of a completion"

    @override
    def rows(self, context: TaskContext, samples: Sequence[Completion]) -> TokenizedRows:
        texts = CompletionTokenizer(context.tokenizer, context.max_tokens)
        inputs: list[NDArray[Any]] = []
        labels: list[NDArray[Any]] = []
        numbers = list[int]()
        truncated = 0
        for start in range(0, len(samples), CHUNK):
            chunk = samples[start : start + CHUNK]
            for number, tokens in self._tokenize(context, chunk, texts):
                ids = np.array(tokens.ids, np.int32)
                is_prompt = np.arange(1, len(ids)) < tokens.first
                inputs.append(ids[:-1])
                labels.append(np.where(is_prompt, IGNORED, ids[1:]))
                numbers.append(start + number)
                truncated += tokens.truncated > 0
        if not inputs:
            raise UsageError("the texts have no token to predict", "give more text")
        arrays = {context.input_names[0]: np.concatenate(inputs), LABELS: np.concatenate(labels)}
        starts = np.cumsum([0, *map(len, inputs)])
        return TokenizedRows(starts, arrays, {SAMPLE: np.array(numbers)}, {}, truncated)

    def _tokenize(
        self, context: TaskContext, samples: Sequence[Completion], texts: CompletionTokenizer
    ) -> list[tuple[int, CompletionTokens]]:
        """Return rows with the indices of their samples."""
        if context.settings.data.label is not None:
            pairs = [(sample.prompt or "", sample.text) for sample in samples]
            return list(enumerate(texts.completions(pairs)))
        rows = list[tuple[int, CompletionTokens]]()
        for number, document in enumerate(texts.documents([sample.text for sample in samples])):
            for piece in document:
                rows.append((number, piece))
        return rows

    @override
    def masks(self, context: TaskContext) -> dict[str, str | None]:
        # Padding follows the text, which does not attend to it.
        return {context.input_names[0]: None}

    @override
    def padding(self, context: TaskContext) -> dict[str, int]:
        return {**super().padding(context), LABELS: IGNORED}

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the logits of the tokens that are predicted, (tokens, vocabulary)."""
        module: Any = model
        ids_name = context.input_names[0]
        inputs = with_prompt(module, {ids_name: batch[ids_name]})
        hidden = without_prompt(module, module.encode(**inputs))
        positions = (batch[LABELS].flatten() != IGNORED).nonzero().squeeze(-1)
        return Outputs({context.name: predict_at(module, hidden, positions)})


class NextTokenCrossEntropy(TaskLoss):
    """Cross-entropy of the next token."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def counts(self, context: TaskContext, rows: TokenizedRows) -> Mapping[str, NDArray[Any]]:
        is_predicted = rows.arrays[LABELS] != IGNORED
        counts = np.add.reduceat(is_predicted.astype(np.int64), rows.starts[:-1])
        return {context.name: counts}

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        logits = outputs.logits[context.name]
        is_predicted = batch[LABELS] != IGNORED
        labels = batch[LABELS][is_predicted]
        if torch.is_grad_enabled():
            rows = labelled_rows(batch, is_predicted)
            return cross_entropy_sum(logits, labels, context.name, rows)
        counts = is_predicted.sum(1)
        row_sums: list[Tensor] = []
        start = 0
        for count in counts.tolist():
            part = slice(start, start + count)
            sums = summed_cross_entropy(select_rows(logits, part), labels[part])
            row_sums.append(torch.stack([value.double() for value in sums]))
            start += count
        loss, correct = torch.stack(row_sums).unbind(1)
        return LossOutput(
            {context.name: loss.sum()},
            {"accuracy": (correct.sum().long(), counts.sum())},
            predictions={
                SAMPLE: batch[SAMPLE],
                SUMS: torch.stack([loss, correct, counts.double()], 1),
            },
        )


class CompletionModel(TaskModel):
    """A decoder, which completes prompts where metrics of generated texts are selected."""

    @override
    def require_valid(self, context: TaskContext) -> None:
        if not context.metrics:
            return
        name = next(iter(context.metrics))
        if context.settings.data.label is None:
            raise UsageError(
                f"{name} is a metric of generated texts, and the data have no completions",
                "name their column with --label",
            )
        if context.settings.fsdp:
            raise UsageError("evaluations with fsdp do not generate", f"leave out {name}")


class CompletionResults(EvaluationResults[Completion]):
    """Perplexity, the exponential of the mean loss per token, and accuracy of tokens."""

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
    def generate(
        self, context: ResultContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        """Return the statistics of completions that are generated for the prompts."""
        assert isinstance(context, TaskContext), "completions are generated in a run"
        if not context.metrics:
            return {}
        assert context.evaluation is not None, "completions are generated for evaluation data"
        samples = [context.evaluation.samples[number] for number in batch[SAMPLE].tolist()]
        device = batch[SAMPLE].device
        texts = generate_completions(context, model, samples, device)
        references = [sample.references for sample in samples]
        return text_statistics(context.metrics, texts, references)

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return ("perplexity", "accuracy")

    @override
    def default_metric(self, context: ResultContext) -> str:
        return "loss"

    @override
    def metrics(
        self, context: ResultContext, predictions: Mapping[str, NDArray[Any]]
    ) -> dict[str, float]:
        """Return the perplexity, at most e^700."""
        loss, _, tokens = predictions[SUMS].sum(0)
        return {"perplexity": finite_perplexity(loss / tokens)}

    @override
    def mistake(self, row: Prediction) -> float | None:
        """Return the loss: the least likely texts come first."""
        loss: float | None = row.get("loss")
        return loss

    @override
    def rows(
        self,
        context: ResultContext,
        predictions: Mapping[str, NDArray[Any]],
        samples: Sequence[Completion],
        numbers: Sequence[int],
    ) -> Iterator[Prediction]:
        if not predictions:
            return
        _, first = np.unique(numbers, return_index=True)  # Processes may share rows.
        sums = np.zeros((len(samples), 3))
        np.add.at(sums, predictions[SAMPLE][first], predictions[SUMS][first])
        for sample, (loss, correct, tokens) in zip(samples, sums.tolist(), strict=True):
            if not tokens:
                continue
            row: dict[str, Any] = {"location": sample.location}
            if sample.prompt is None:
                row["text"] = sample.text
            else:
                row["text"] = sample.prompt
                row["label"] = sample.label
            yield {
                **row,
                "loss": loss / tokens,
                "accuracy": correct / tokens,
                "tokens": int(tokens),
            }


def generate_completions(
    context: TaskContext,
    model: "nn.Module",
    samples: Sequence[Completion],
    device: torch.device,
) -> list[str]:
    """Return a completion of the prompt of each sample, without white space at its ends."""
    module: Any = model
    config: Any = context.config
    tokenizer = context.tokenizer
    ends = end_ids(context)
    settings = run_generation_config(context)
    prompts = []
    room = prompt_room(context, settings.longest)
    for encoded in tokenizer.encode_prompts(list(map(prompt_of, samples)), max_tokens=None):
        ids = encoded.ids or CompletionTokenizer(tokenizer, context.max_tokens).start_ids
        prompts.append(ids if room is None else ids[-room:])
    # Products are in float32, as in ``zoo run``, whatever the precision of the run is.
    with torch.autocast(device.type, enabled=False):
        completions = generate(
            module,
            pad(prompts, side=Generate.side, pad_id=context.pad_id, device=device),
            settings,
            eos_token_ids=ends,
            logits_processor=context.family.logits_processors(config, context.head),
        )
    decode = tokenizer.targets.decode
    texts = []
    for prompt, tokens in zip(prompts, completions, strict=True):
        new_tokens = [token for token in tokens if token not in ends]
        text = decode([*prompt, *new_tokens])
        texts.append(text[len(decode(prompt)) :].strip())
    return texts


def end_ids(context: TaskContext) -> tuple[int, ...]:
    """Return the end-of-sequence tokens: of the settings of generation, or the tokenizer's."""
    config: Any = context.config
    settings = generation_config(context.generation, {})
    ids = [token for token in token_ids(settings.eos_token_id) if token < config.vocab_size]
    return tuple(ids) or token_ids(context.tokenizer.role_id("eos"))


def run_generation_config(context: TaskContext) -> GenerationConfig:
    """Return the settings of generation: the model's, and the longest completion's length."""
    max_new_tokens = None
    if not {"max_new_tokens", "max_length"} & context.generation.keys():
        assert context.evaluation is not None, "completions are generated for evaluation data"
        labels = context.evaluation.rows.arrays[LABELS]
        starts = context.evaluation.rows.starts
        lengths = np.add.reduceat((labels != IGNORED).astype(np.int64), starts[:-1])
        max_new_tokens = min(int(lengths.max()), MAX_NEW_TOKENS)
    requested = {"max_new_tokens": max_new_tokens, "num_return_sequences": 1}
    return generation_config(context.generation, requested)


def prompt_room(context: TaskContext, new_tokens: int) -> int | None:
    """Return the largest number of tokens of a prompt; ``None`` without a limit.

    Raises:
        UsageError: new tokens leave no room for a prompt.
    """
    limits = context.family.onnx(context.config, context.head).limits
    if context.settings.adapter is not None:
        limits = parse_adapter(context.settings.adapter).shortened(limits)
    if not limits:
        return None
    room = min(limits.values()) - new_tokens
    if room < 1:
        raise UsageError(
            f"{new_tokens} new tokens leave no room for a prompt",
            f"the model takes {min(limits.values())} in all",
        )
    return room


CAUSAL_LM = FineTuningTask(
    name=NAME,
    head=NAME,
    data=CompletionData(),
    inputs=CompletionInputs(),
    loss=NextTokenCrossEntropy(),
    results=CompletionResults(),
    model=CompletionModel(),
)
