"""Quality of a student and its teachers on held-out data, and how far their predictions agree."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.checkpoint import WEIGHTS, load_checkpoint
from zoo.distillation.logits import dense, num_classes
from zoo.distillation.losses.kl import kl_divergence
from zoo.distillation.outputs import ModelOutput
from zoo.distillation.setup import DistillSetup
from zoo.distillation.teachers.teacher import Teacher, run_model
from zoo.errors import NonFiniteError
from zoo.finetuning.base import FineTuning
from zoo.metrics.ranks import spearman
from zoo.nn.kernels.row_chunks import Logits, chunked_logits
from zoo.nn.layers.skip_init import build_without_init
from zoo.objectives.base import Batch, LossOutput, TrainingObjective
from zoo.tasks.sentences.train import Sentences
from zoo.training.distributed.context import DistContext
from zoo.training.logging.aggregate import MetricSums, Predictions
from zoo.training.state.state_dict import load_unique_state_dict

SIMILARITY = "similarity"
PAIRED = 500  # sentences, whose similarities are compared pairwise


@dataclass
class Evaluation:
    """Results of one model over the held-out batches."""

    objective: TrainingObjective  # objective or task that runs the model
    # loss term -> weight in ``loss``; the terms that student and teachers have
    weights: Mapping[str, float]
    sums: MetricSums = field(default_factory=MetricSums)  # losses and metrics
    # predictions by name, for ``compute_metrics``
    predictions: Predictions = field(default_factory=Predictions)
    agreed: int = 0  # number of predictions that are those of the first teacher
    divergence: float = 0.0  # sum of the KL divergences from the first teacher, in nats
    compared: int = 0  # number of predictions that were compared
    diverged: int = 0  # number of predictions whose divergence was added
    # sentence embeddings of each batch, of this model and the first teacher
    embeddings: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, output: LossOutput, counts: Mapping[str, float]) -> None:
        """Add the losses, metrics and predictions of a batch."""
        self.sums.add(output, counts)
        self.predictions.add(output.predictions)

    def compare(self, view: ModelOutput, teacher: ModelOutput) -> None:
        """Add the comparison of a batch's predictions with those of the first teacher."""
        if isinstance(self.objective, Sentences):
            name = self.objective.name
            vectors = (side.outputs.logits[name].cpu() for side in (view, teacher))
            self.embeddings.append((next(vectors), next(vectors)))
            _require_numbers(*self.embeddings[-1])
            return
        for term in self.objective.scored_terms:
            mine, other = (side.logits(term, everywhere=False) for side in (view, teacher))
            columns = min(num_classes(mine), num_classes(other))
            if columns < 2:  # a number, no choice
                continue
            labels = _labels_of(self.objective, mine), _labels_of(teacher.objective, other)
            if labels[0] is not None and labels[1] is not None:
                same = labels[0] == labels[1]
            else:
                same = _top(mine, columns) == _top(other, columns)
                total = kl_divergence(mine, [other], temperature=1.0, columns=columns)
                _require_numbers(total)
                self.divergence += float(total)
                self.diverged += same.numel()
            self.agreed += int(same.sum())
            self.compared += same.numel()

    def metrics(self) -> dict[str, float]:
        """Return the loss, and the metrics of the objective or task.

        Loss terms that not all models have are metrics by their names.
        """
        record = self.sums.compute_and_reset(self.weights)
        if self.weights and not math.isfinite(record["loss"]):
            raise NonFiniteError("the loss on the held-out data is NaN or infinite")
        numbers = {
            **({"loss": record["loss"]} if self.weights else {}),
            **record["metrics"],
            **self.objective.compute_metrics(self.predictions.tensors()),
        }
        if self.embeddings:
            mine, other = (torch.cat(vectors) for vectors in zip(*self.embeddings, strict=True))
            numbers |= embedding_metrics(mine, other)
        return {name: value for name, value in numbers.items() if math.isfinite(value)}


def embedding_metrics(student: Tensor, teacher: Tensor) -> dict[str, float]:
    """Return the similarity of embeddings to those of a teacher.

    ``similarity`` is the correlation of similarities, see ``similarity_correlation``; of one width,
    ``cosine`` is the mean cosine similarity of the two embeddings of a sentence, and ``mse`` their
    mean squared difference.

    Args:
        student: embeddings of the student, (sentences, width).
    """
    metrics = {SIMILARITY: similarity_correlation(student, teacher)}
    if student.shape == teacher.shape:
        pair = student.double(), teacher.double()
        metrics["cosine"] = float(F.cosine_similarity(*pair).mean())
        metrics["mse"] = float(F.mse_loss(*pair))
    return metrics


def similarity_correlation(student: Tensor, teacher: Tensor) -> float:
    """Return the rank correlation of the cosine similarities of pairs of sentences.

    The pairs are all those of ``PAIRED`` sentences or fewer; models may have other widths.

    Args:
        student: embeddings of the student, (sentences, width).
    """
    rows = torch.linspace(0, len(student) - 1, min(PAIRED, len(student))).round().long()
    pairs = torch.triu_indices(len(rows), len(rows), 1)
    similarities = []
    for vectors in (student, teacher):
        unit = F.normalize(vectors[rows].double(), dim=-1)
        similarities.append((unit @ unit.T)[pairs[0], pairs[1]].numpy())
    return spearman(*similarities)


def _labels_of(objective: TrainingObjective, logits: Logits) -> Tensor | None:
    """Return which of any number of labels are predicted; ``None`` where one of them is."""
    if getattr(objective, "problem", None) != "multi_label_classification":
        return None
    values = dense(logits, num_classes(logits))
    _require_numbers(values)
    return values >= 0


def _require_numbers(*values: Tensor) -> None:
    """Raise an error for NaN, which would agree with NaN: both have the same argmax."""
    if any(bool(value.isnan().any()) for value in values):
        raise NonFiniteError("the student or its teacher returned NaN for held-out data")


def _top(logits: Logits, columns: int) -> Tensor:
    """Return the class with the largest logit of each row, among the first ones."""
    if isinstance(logits, Tensor):
        return logits[..., :columns].argmax(-1)
    return torch.cat([part[..., :columns].argmax(-1) for _, part in chunked_logits(logits)])


def load_student(setup: DistillSetup, run: Path) -> nn.Module:
    """Return the module of the student's objective, with the final models of a run."""
    base = setup.objective.base
    module = build_without_init(
        lambda: base.model(setup.family, setup.model_config),
        lambda new: [
            parameter
            for trained in base.models_to_save(new).values()
            for parameter in trained.module.parameters()
        ],
    ).module
    for name, trained in base.models_to_save(module).items():
        checkpoint = load_checkpoint(run / name)
        checkpoint.require_unchanged()
        file = run / name / WEIGHTS
        load_unique_state_dict(trained.module, load_file(file), file)
        if isinstance(base, FineTuning) and name == "model":
            base.load_checkpoint(module, checkpoint)
    return module.eval().requires_grad_(False)


@torch.no_grad()
def evaluate(
    setup: DistillSetup, student: nn.Module, device: torch.device
) -> tuple[Evaluation, list[Evaluation | None], int]:
    """Evaluate a student and its teachers on the held-out data."""
    base, teachers = setup.objective.base, setup.objective.scored_teachers(setup.base)
    main = base.models_to_save(student.to(device))["model"].module
    weights = shared_weights(base, teachers)
    mine = Evaluation(base, weights)
    others = [
        None if teacher is None else Evaluation(teacher.objective, weights) for teacher in teachers
    ]
    batches = setup.eval_batches(DistContext(0, 1, device))
    for batch in batches:
        tensors = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
        view = run_model(student, main, base, tensors, {}, needs_head=True)
        mine.add(_output(view, student), batch.counts)
        read = {**tensors, **view.outputs.inputs}
        views = [None if teacher is None else teacher.forward(read, {}) for teacher in teachers]
        _add_teachers(others, views, batch)
        if views[0] is not None:
            mine.compare(view, views[0])
    return mine, others, sum(batch.rows for batch in batches)


def shared_weights(base: TrainingObjective, teachers: Sequence[Teacher | None]) -> dict[str, float]:
    """Return loss term -> weight of the terms that a student and its teachers have.

    A single one of several has a weight of 1: it is compared by itself.
    """
    known = [teacher.objective.loss_weights for teacher in teachers if teacher is not None]
    shared = {
        name: weight
        for name, weight in base.loss_weights.items()
        if all(name in weights for weights in known)
    }
    alone = len(shared) == 1 < len(base.loss_weights)
    return dict.fromkeys(shared, 1.0) if alone else shared


def _add_teachers(
    results: Sequence[Evaluation | None], views: Sequence[ModelOutput | None], batch: Batch
) -> None:
    first = views[0]
    for number, (result, view) in enumerate(zip(results, views, strict=True)):
        if result is not None and view is not None:
            result.add(_output(view, view.model), batch.counts)
            if first is not None and (number or isinstance(result.objective, Sentences)):
                result.compare(view, first)


def _output(view: ModelOutput, module: Any) -> LossOutput:
    """Return losses and predictions of an evaluation, generated ones included."""
    output = view.objective.loss_with_auxiliary(view.outputs, view.batch)
    further = view.objective.generated_predictions(module, view.batch)
    return replace(output, predictions=output.predictions | further)
