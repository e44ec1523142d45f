"""Pattern-exploiting training: the classifier that learns from soft labels.

Schick and Schütze 2021, "Exploiting Cloze Questions for Few Shot Text Classification and Natural
Language Inference", arXiv:2001.07676, section 3.4. The loss follows the released code
(timoschick/pet, ``pet/wrapper.py``): both distributions have the temperature.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.labelled import Sample, label_name
from zoo.data.readers.problems import RowError
from zoo.families.tasks import LabelType
from zoo.finetuning.labelled_texts import Label, LabelledTexts
from zoo.finetuning.labels import label_index, match_labels
from zoo.finetuning.task import LABELS, FineTuningTask, TaskContext, TaskLoss
from zoo.finetuning.text_inputs import TextInputs, TextModel
from zoo.inference.text_results import CLASS_RESULTS
from zoo.objectives.base import LossOutput, Outputs
from zoo.overrides import override
from zoo.tasks.pet.options import PetOptions
from zoo.tasks.pet.stages import PetStages
from zoo.tasks.prompt.template import resolve_label_words
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from torch import Tensor


class SoftLabel(Label):
    """The name of a class, or an object with the probability of each."""

    @override
    def names(self, sample: Sample, table: TableConfig) -> tuple[str, ...]:
        """Return the class, or the most probable one."""
        if isinstance(sample.label, Mapping):
            probabilities = sample.label
            return (max(probabilities, key=lambda name: probabilities[name]),)
        return (label_name(sample.label, sample.location),)

    @override
    def check(self, sample: Sample, table: TableConfig) -> None:
        if isinstance(sample.label, Mapping):
            values = sample.label.values()
            numbers = [value for value in values if isinstance(value, int | float)]
            are_valid = len(numbers) == len(values) and min(numbers, default=-1) >= 0
            if not are_valid or not np.isclose(sum(numbers), 1, atol=1e-4):
                raise RowError(f"{sample.location}: the label is not probabilities of labels")
        super().check(sample, table)

    @override
    def fit(
        self, settings: FineTuneConfig, samples: Sequence[Sample], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the labels that have words; the texts may lack some of them."""
        words = resolve_label_words(settings.task_args.get("label_words") or "")
        if not pretrained:
            return tuple(words)
        present = {name for sample in samples for name in self.names(sample, settings.data)}
        return match_labels(pretrained, present.union(settings.data.labels or ()))

    @override
    def target(self, context: TaskContext, sample: Sample) -> Any:
        """Return the probabilities of the labels, (labels,), float32."""
        target = np.zeros(len(context.labels), np.float32)
        probabilities = sample.label
        if not isinstance(probabilities, Mapping):
            (name,) = self.names(sample, context.settings.data)
            probabilities = {name: 1.0}
        for name, probability in probabilities.items():
            target[label_index(name, context.label_indices, sample.location)] = probability
        return target


class SoftCrossEntropy(TaskLoss):
    """The squared temperature times the divergence from soft labels, at the temperature."""

    label_tensor: ClassVar[str | None] = LABELS

    @override
    def label_type(self, context: TaskContext) -> LabelType:
        return "probabilities"

    @override
    def loss(
        self, context: TaskContext, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> LossOutput:
        logits = outputs.logits[context.name]
        labels = batch[LABELS]
        temperature = context.options.temperature
        log_probabilities = F.log_softmax(logits / temperature, -1)
        loss = F.kl_div(log_probabilities, labels, reduction="sum") * temperature**2
        probability, prediction = logits.detach().softmax(-1).max(-1)
        return LossOutput(
            {context.name: loss},
            predictions={
                "prediction": prediction,
                "label": labels.argmax(-1),
                "probability": probability,
            },
        )


PET = FineTuningTask(
    name="pet",
    head="sequence-classification",
    data=LabelledTexts(SoftLabel()),
    inputs=TextInputs(),
    loss=SoftCrossEntropy(),
    results=CLASS_RESULTS,
    model=TextModel(),
    options_type=PetOptions,
    problem="single_label_classification",
    stages=PetStages(),
    defaults={
        "batch_size": 16,
        "max_steps": 5000,
        "eval_steps": 500,
        "max_seq_len": 256,
        "optimizer": {"learning_rate": 1e-5},
    },
)
