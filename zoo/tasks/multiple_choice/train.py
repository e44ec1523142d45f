"""Multiple choice: one of several texts for a context."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.finetuning.base import LABELS
from zoo.finetuning.labels import class_loss
from zoo.finetuning.rows import TokenizedRows, pad_and_stack, tokenize
from zoo.finetuning.text_inputs import NEXT_TOKEN, InputTask
from zoo.metrics.classification import accuracy
from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.overrides import override
from zoo.tasks.multiple_choice.data import ChoiceColumns, read_choices, review_choice
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.evaluation.base import Prediction

LENGTHS = "choice_lengths"  # number of tokens of each choice, 0 where a question has fewer


class MultipleChoice(InputTask):
    """Cross-entropy of the correct choice, over the choices of a question."""

    # Each choice is a text with the context, whose score is one output of the head (Devlin et al.
    # 2019, sec. 4.4). Questions may have different numbers of choices.

    name: ClassVar[str] = "multiple-choice"
    head: ClassVar[str] = "multiple-choice"
    varying_outputs: ClassVar[str] = "whose questions have different numbers of choices"
    default_metric: ClassVar[str] = "accuracy"
    defaults: ClassVar[Mapping[str, Any]] = {"data": {"text": ChoiceColumns.text}}

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return ("accuracy",)

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        columns = ChoiceColumns(data.text, data.pair, data.label_column, data.choices)
        return list(read_choices(paths, columns, problems))

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        return review_choice(sample)

    @classmethod
    @override
    def texts(cls, sample: Any) -> list[str]:
        return [sample.context, *(text for _, text in sample.pairs)]

    @override
    def target(self, sample: Any) -> Any:
        return sample.label

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """Return rows that have the choices of a question one after another."""
        texts = [pair for sample in samples for pair in sample.pairs]
        locations = [sample.location for sample in samples for _ in sample.choices]
        tokens = tokenize(texts, tokenizer, self.inputs, self.run.max_seq_len, locations=locations)
        numbers = np.array([len(sample.choices) for sample in samples])
        lengths = np.zeros((len(samples), numbers.max()), np.int64)
        lengths[np.arange(numbers.max()) < numbers[:, None]] = np.diff(tokens.starts)
        values = {LABELS: np.array([self.target(sample) for sample in samples]), LENGTHS: lengths}
        starts = tokens.starts[np.cumsum([0, *numbers])]
        counts = {self.name: np.ones(len(samples), np.int64)}
        counts |= {NEXT_TOKEN: numbers} if self.options.lm_coef else {}
        return TokenizedRows(starts, tokens.arrays, values, counts, tokens.truncated)

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        """Pad the choices to the longest one, and stack them: (rows, choices, tokens)."""
        lengths = np.stack([row.values[LENGTHS] for row in examples])
        return pad_and_stack(
            examples,
            self.padding(),
            list(self.loss_weights),
            masks=self.masks(),
            lengths=np.ascontiguousarray(lengths[:, lengths.any(0)]),
        )

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the choices, (rows, choices), -inf where there is none."""
        inputs = {name: batch[name] for name in self.inputs if name in batch}
        # a model that also predicts tokens has a method that only scores choices
        choice_logits = getattr(model, "choice_logits", None)
        if self.options.lm_coef or choice_logits is None:
            scores, auxiliary = self.hidden_and_logits(model, inputs)
        else:
            scores, auxiliary = choice_logits(**with_prompt(model, inputs)), {}
        absent = batch[LENGTHS][:, : scores.shape[1]] == 0
        scores = at_least_float32(scores).masked_fill(absent, float("-inf"))
        return Outputs({self.name: scores, **auxiliary})

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        return class_loss(self.name, outputs.logits[self.name], batch[LABELS])

    @override
    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        chosen = int(values["prediction"])
        return {
            "location": sample.location,
            "text": sample.context,
            "question": sample.question,
            "label": sample.choices[sample.label],
            "prediction": sample.choices[chosen],
            "probability": float(values["probability"]),
            "correct": chosen == sample.label,
        }

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        return {"accuracy": accuracy(predictions["prediction"], predictions["label"])}
