"""Pattern-exploiting training: the classifier that learns from soft labels.

Schick and Schütze 2021, "Exploiting Cloze Questions for Few Shot Text Classification and Natural
Language Inference", arXiv:2001.07676, section 3.4. The loss follows the released code
(timoschick/pet, ``pet/wrapper.py``): both distributions have the temperature.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.problems import RowError
from zoo.finetuning.base import LABELS
from zoo.finetuning.labels import label_index
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.stages import TaskStages
from zoo.finetuning.text_inputs import TextTask
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.pet.options import PetOptions
from zoo.tasks.pet.stages import PetStages
from zoo.tasks.prompt.train import resolved_words
from zoo.tasks.text_classification.train import TextClassification
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from torch import Tensor


class Pet(TextClassification):
    """Divergence from soft labels, at a temperature."""

    # A label is the name of a class, or an object with the probability of each.

    name: ClassVar[str] = "pet"
    options_type: ClassVar[type[Options]] = PetOptions
    stages: ClassVar[TaskStages | None] = PetStages()
    defaults: ClassVar[Mapping[str, Any]] = {
        "batch_size": 16,
        "max_steps": 5000,
        "eval_steps": 500,
        "max_seq_len": 256,
        "optimizer": {"learning_rate": 1e-5},
    }

    @classmethod
    @override
    def check(cls, sample: Any, data: TableConfig) -> Any:
        if isinstance(sample.label, Mapping):
            numbers = [v for v in sample.label.values() if isinstance(v, int | float)]
            proper = len(numbers) == len(sample.label) and min(numbers, default=-1) >= 0
            if not proper or not np.isclose(sum(numbers), 1, atol=1e-4):
                raise RowError(f"{sample.location}: the label is not probabilities of labels")
        return super().check(sample, data)

    @classmethod
    @override
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        """Return the label, or the most probable one."""
        if isinstance(sample.label, Mapping):
            return (max(sample.label, key=lambda name: sample.label[name]),)
        return super().label_names(sample, data)

    @classmethod
    @override
    def fix_labels(
        cls, run: FineTuneConfig, samples: Sequence[Any], known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the labels that have words; the texts may lack some of them."""
        words = resolved_words(run.task_args.get("label_words") or "")
        return super().fix_labels(run, samples, known) if known else tuple(words)

    @override
    def target(self, sample: Any) -> Any:
        """Return the probabilities of the labels, (labels,), float32."""
        target = np.zeros(len(self.labels), np.float32)
        label = sample.label
        if not isinstance(label, Mapping):
            (name,) = self.label_names(sample, self.run.data)
            label = {name: 1.0}
        for name, probability in label.items():
            target[label_index(name, self.indices, sample.location)] = probability
        return target

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        return TextTask.rows(self, samples, tokenizer)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the squared temperature times the divergence."""
        logits, labels = outputs.logits[self.name], batch[LABELS]
        temperature = self.options.temperature
        logarithms = F.log_softmax(logits / temperature, -1)
        loss = F.kl_div(logarithms, labels, reduction="sum") * temperature**2
        probability, prediction = logits.detach().softmax(-1).max(-1)
        return LossOutput(
            {self.name: loss},
            predictions={
                "prediction": prediction,
                "label": labels.argmax(-1),
                "probability": probability,
            },
        )
