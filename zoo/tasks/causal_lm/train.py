"""Causal language modelling on texts, or on completions of prompts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.finetuning.base import LABELS, FineTuning
from zoo.finetuning.rows import TokenizedRows
from zoo.inference.completions import CompletionTokenizer, CompletionTokens
from zoo.metrics.likelihood import finite_perplexity
from zoo.nn.adapters.prompt import with_prompt, without_prompt
from zoo.nn.kernels.row_chunks import select_rows
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.losses.cross_entropy import IGNORED, summed_cross_entropy
from zoo.objectives.losses.predictions import cross_entropy_sum, predict_at
from zoo.overrides import override
from zoo.tasks.causal_lm.data import Completion, read_completions, review_completion
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.evaluation.base import Prediction

CHUNK = 1024  # texts that are tokenized together
SAMPLE = "sample"  # number of the sample of a row
SUMS = "sums"  # predictions: of each row, its loss, and the numbers of correct tokens and of all


class CausalLanguageModelling(FineTuning):
    """Cross-entropy of the next token: of documents, or of completions after their prompts."""

    # With a column of labels, the texts are prompts, whose tokens count for no loss, and the labels
    # their completions. Documents longer than ``max_seq_len`` are cut into rows; each token is
    # predicted once. ``perplexity`` is the exponential of the mean loss per token.

    name: ClassVar[str] = "causal-lm"
    head: ClassVar[str] = "causal-lm"
    varying_outputs: ClassVar[str] = "which has logits of all tokens for each token of a completion"

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return ("perplexity", "accuracy")

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        if data.pair is not None:
            raise UsageError(f"{cls.name} has no second text", "leave out --pair")
        return list(read_completions(paths, data.text, data.label, problems))

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        return review_completion(sample)

    @classmethod
    @override
    def texts(cls, sample: Any) -> list[str]:
        return [(sample.prompt or "") + sample.text]

    @override
    def target(self, sample: Any) -> Any:
        """Return the text that is predicted."""
        return sample.text

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """Return rows, several for a long document."""
        texts = CompletionTokenizer(tokenizer, self.run.max_seq_len)
        inputs, labels, cut = list[NDArray[Any]](), list[NDArray[Any]](), 0
        numbers = list[int]()
        for start in range(0, len(samples), CHUNK):
            for number, tokens in self._tokens(samples[start : start + CHUNK], texts):
                numbers.append(start + number)
                ids = np.array(tokens.ids, np.int32)
                inputs.append(ids[:-1])
                labels.append(np.where(np.arange(1, len(ids)) < tokens.first, IGNORED, ids[1:]))
                cut += tokens.truncated > 0
        if not inputs:
            raise UsageError("the texts have no token to predict", "give more text")
        counts = np.array([np.count_nonzero(row != IGNORED) for row in labels])
        return TokenizedRows(
            np.cumsum([0, *map(len, inputs)]),
            {self.inputs[0]: np.concatenate(inputs), LABELS: np.concatenate(labels)},
            {SAMPLE: np.array(numbers)},
            {self.name: counts},
            cut,
        )

    def _tokens(
        self, samples: Sequence[Completion], texts: CompletionTokenizer
    ) -> list[tuple[int, CompletionTokens]]:
        """Return rows with the indices of their samples."""
        if self.run.data.label is None:
            pieces = texts.documents([sample.text for sample in samples])
            return [(k, piece) for k, document in enumerate(pieces) for piece in document]
        pairs = [(sample.prompt or "", sample.text) for sample in samples]
        return list(enumerate(texts.completions(pairs)))

    @override
    def masks(self) -> dict[str, str | None]:
        # padding follows the text, which does not attend to it
        return {self.inputs[0]: None}

    @override
    def padding(self) -> dict[str, int]:
        return {**super().padding(), LABELS: IGNORED}

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the tokens that are predicted, (tokens, vocabulary)."""
        module: Any = model
        inputs = with_prompt(module, {self.inputs[0]: batch[self.inputs[0]]})
        hidden = without_prompt(module, module.encode(**inputs))
        positions = (batch[LABELS].flatten() != IGNORED).nonzero().squeeze(-1)
        return Outputs({self.name: predict_at(module, hidden, positions)})

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        logits, predicted = outputs.logits[self.name], batch[LABELS] != IGNORED
        labels = batch[LABELS][predicted]
        if torch.is_grad_enabled():
            return cross_entropy_sum(logits, labels, self.name)
        counts, rows, start = predicted.sum(1), [], 0
        for count in counts.tolist():
            part = slice(start, start + count)
            sums = summed_cross_entropy(select_rows(logits, part), labels[part])
            rows.append(torch.stack([value.double() for value in sums]))
            start += count
        loss, correct = torch.stack(rows).unbind(1)
        return LossOutput(
            {self.name: loss.sum()},
            {"accuracy": (correct.sum().long(), counts.sum())},
            predictions={
                SAMPLE: batch[SAMPLE],
                SUMS: torch.stack([loss, correct, counts.double()], 1),
            },
        )

    @override
    def metrics(self, predictions: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return the perplexity, at most e^700."""
        loss, _, tokens = predictions[SUMS].sum(0)
        return {"perplexity": finite_perplexity(loss / tokens)}

    @override
    def reported(
        self,
        predictions: Mapping[str, NDArray[Any]],
        samples: Sequence[Any],
        numbers: Sequence[int],
    ) -> "Iterator[Prediction]":
        if not predictions:
            return
        first = np.unique(numbers, return_index=True)[1]  # processes may share rows
        sums = np.zeros((len(samples), 3))
        np.add.at(sums, predictions[SAMPLE][first], predictions[SUMS][first])
        for sample, (loss, correct, tokens) in zip(samples, sums.tolist(), strict=True):
            if tokens:
                yield {
                    "location": sample.location,
                    "text": sample.text if sample.prompt is None else sample.prompt,
                    **({} if sample.prompt is None else {"label": sample.text}),
                    "loss": loss / tokens,
                    "accuracy": correct / tokens,
                    "tokens": int(tokens),
                }
