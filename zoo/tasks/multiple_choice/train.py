"""Training on multiple choice: one of several texts for a context.

Each choice is a text with the context, whose score is one output of the head (Devlin et al. 2019,
sec. 4.4). Questions may have different numbers of choices.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.tokenizer import ExistingTokenizer
from zoo.finetuning.class_losses import class_loss
from zoo.finetuning.next_token import (
    NEXT_TOKEN,
    logits_and_next_token,
    next_token_weights,
    require_next_token,
)
from zoo.finetuning.rows import TokenizedRows, pad_and_stack, tokenize
from zoo.finetuning.task import (
    LABELS,
    FineTuningTask,
    TaskContext,
    TaskData,
    TaskInputs,
    TaskLoss,
    TaskModel,
    model_inputs,
)
from zoo.finetuning.text_inputs import InputOptions, add_input_tokens
from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.overrides import override
from zoo.tasks.multiple_choice.data import (
    ChoiceColumns,
    ChoiceSample,
    read_choices,
    review_choice,
)
from zoo.tasks.multiple_choice.results import ChoiceResults
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.families.base import Family
    from zoo.families.config import Config

LENGTHS = "choice_lengths"  # Number of tokens of each choice, 0 where a question has fewer.


class ChoiceData(TaskData[ChoiceSample]):
    """Questions with choices."""

    @override
    def read(
        self, paths: Sequence[str], table: TableConfig, problems: RowProblems
    ) -> list[ChoiceSample]:
        columns = ChoiceColumns(table.text, table.pair, table.label_column, table.choices)
        return list(read_choices(paths, columns, problems))

    @override
    def texts(self, sample: ChoiceSample) -> list[str]:
        return [sample.context, *(text for _, text in sample.pairs)]

    @override
    def review(self, sample: ChoiceSample, table: TableConfig) -> Reviewed:
        return review_choice(sample)

    @override
    def target(self, context: TaskContext, sample: ChoiceSample) -> Any:
        return sample.label


class ChoiceModel(TaskModel):
    """A model with a score for each choice, and tokens around texts if an option sets them."""

    @override
    def adapt_tokenizer(
        self, settings: FineTuneConfig, tokenizer: ExistingTokenizer | None
    ) -> ExistingTokenizer | None:
        return add_input_tokens(settings, tokenizer)

    @override
    def build(self, context: TaskContext, family: "Family", config: "Config") -> "nn.Module":
        module = super().build(context, family, config)
        require_next_token(context, module)
        return module


class ChoiceInputs(TaskInputs[ChoiceSample]):
    """A row has the choices of a question one after another."""

    varying_outputs: ClassVar[str] = "whose questions have different numbers of choices"

    @override
    def auxiliary_weights(self, context: TaskContext) -> Mapping[str, float]:
        return next_token_weights(context)

    @override
    def rows(self, context: TaskContext, samples: Sequence[ChoiceSample]) -> TokenizedRows:
        texts = [pair for sample in samples for pair in sample.pairs]
        locations = [sample.location for sample in samples for _ in sample.choices]
        tokens = tokenize(
            texts, context.tokenizer, context.input_names, context.max_tokens, locations=locations
        )
        choices = np.array([len(sample.choices) for sample in samples])
        is_present = np.arange(choices.max()) < choices[:, None]
        lengths = np.zeros(is_present.shape, np.int64)
        lengths[is_present] = np.diff(tokens.starts)
        values = {
            LABELS: np.array([context.target(sample) for sample in samples]),
            LENGTHS: lengths,
        }
        starts = tokens.starts[np.cumsum([0, *choices])]
        counts = {NEXT_TOKEN: choices} if context.options.lm_coef else {}
        return TokenizedRows(
            starts, tokens.arrays, values, counts, tokens.truncated, num_texts=len(texts)
        )

    @override
    def collate(
        self, context: TaskContext, examples: Sequence[Example], terms: Sequence[str]
    ) -> Batch:
        """Pad the choices to the longest one, and stack them: (rows, choices, tokens)."""
        lengths = np.stack([row.values[LENGTHS] for row in examples])
        return pad_and_stack(
            examples,
            self.padding(context),
            terms,
            masks=self.masks(context),
            lengths=np.ascontiguousarray(lengths[:, lengths.any(0)]),
        )

    @override
    def forward(
        self, context: TaskContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the logits of the choices, (rows, choices), -inf where there is none."""
        inputs = model_inputs(context, batch)
        # A model that also predicts tokens has a method that only scores choices.
        choice_logits = getattr(model, "choice_logits", None)
        auxiliary: dict[str, Tensor] = {}
        if context.options.lm_coef or choice_logits is None:
            scores, auxiliary = logits_and_next_token(context, model, inputs)
        else:
            scores = choice_logits(**with_prompt(model, inputs))
        is_absent = batch[LENGTHS][:, : scores.shape[1]] == 0
        scores = at_least_float32(scores).masked_fill(is_absent, float("-inf"))
        return Outputs({context.name: scores, **auxiliary})


class ChoiceCrossEntropy(TaskLoss):
    """Cross-entropy of the correct choice, over the choices of a question."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        return class_loss(context.name, outputs.logits[context.name], batch)


MULTIPLE_CHOICE = FineTuningTask(
    name="multiple-choice",
    head="multiple-choice",
    data=ChoiceData(),
    inputs=ChoiceInputs(),
    loss=ChoiceCrossEntropy(),
    results=ChoiceResults(),
    model=ChoiceModel(),
    options_type=InputOptions,
    defaults={"data": {"text": ChoiceColumns.text}},
)
