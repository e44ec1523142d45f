"""Quality of a student and its teachers on held-out data, and agreement of their predictions."""

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
from zoo.distillation.divergences import kl_divergence
from zoo.distillation.logits import dense, num_classes
from zoo.distillation.outputs import ModelOutput
from zoo.distillation.setup import DistillSetup
from zoo.distillation.teachers.teacher import Teacher, run_model
from zoo.errors import NonFiniteError
from zoo.finetuning.objective import FineTuning
from zoo.metrics.ranks import spearman
from zoo.nn.layers.skip_init import build_without_init
from zoo.nn.row_chunks import Logits, chunked_logits
from zoo.objectives.base import LossOutput, TrainingObjective
from zoo.training.distributed.context import DistContext
from zoo.training.logging.aggregate import MetricSums, Predictions
from zoo.training.state.state_dict import load_unique_state_dict

SIMILARITY = "similarity"
MAX_PAIRED = 500  # Number of sentences whose pairwise similarities are compared.


@dataclass
class ModelQuality:
    """Results of one model on the held-out batches, compared with the first teacher's."""

    objective: TrainingObjective  # Runs the model.
    weights: Mapping[str, float]  # Loss -> weight, for the losses that all models have.
    sums: MetricSums = field(default_factory=MetricSums)  # Losses and metrics.
    predictions: Predictions = field(default_factory=Predictions)  # Read by ``compute_metrics``.
    compared: int = 0  # Number of predictions that are compared with the teacher's.
    agreed: int = 0  # Number of these that equal the teacher's.
    divergence: float = 0.0  # Sum of KL(teacher || model), in nats.
    diverged: int = 0  # Number of predictions in this sum.
    # The embeddings of each batch by this model and by the teacher.
    embeddings: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, output: LossOutput, counts: Mapping[str, float]) -> None:
        """Add the losses, metrics and predictions of a batch."""
        self.sums.add(output, counts)
        self.predictions.add(output.predictions)

    def compare(self, output: ModelOutput, teacher: ModelOutput) -> None:
        """Compare the predictions for a batch with the teacher's."""
        if _compares_embeddings(self.objective):
            self._add_embeddings(output, teacher)
            return
        for term in self.objective.scored_terms:
            logits = output.logits(term, everywhere=False)
            teacher_logits = teacher.logits(term, everywhere=False)
            columns = min(num_classes(logits), num_classes(teacher_logits))
            if columns < 2:  # A number, not a choice.
                continue
            labels = _predicted_labels(self.objective, logits)
            teacher_labels = _predicted_labels(teacher.objective, teacher_logits)
            if labels is not None and teacher_labels is not None:
                agrees = labels == teacher_labels
            else:
                agrees = _top_class(logits, columns) == _top_class(teacher_logits, columns)
                total = kl_divergence(logits, [teacher_logits], temperature=1.0, columns=columns)
                _require_numbers(total)
                self.divergence += float(total)
                self.diverged += agrees.numel()
            self.agreed += int(agrees.sum())
            self.compared += agrees.numel()

    def _add_embeddings(self, output: ModelOutput, teacher: ModelOutput) -> None:
        name = self.objective.name
        vectors = output.outputs.logits[name].cpu()
        teacher_vectors = teacher.outputs.logits[name].cpu()
        self.embeddings.append((vectors, teacher_vectors))
        _require_numbers(vectors, teacher_vectors)

    def metrics(self) -> dict[str, float]:
        """Return the loss, and the metrics of the objective or task.

        Losses that not all models have are not part of the loss, but metrics.
        """
        record = self.sums.compute_and_reset(self.weights)
        numbers: dict[str, float] = {}
        if self.weights:
            if not math.isfinite(record["loss"]):
                raise NonFiniteError("the loss on the held-out data is NaN or infinite")
            numbers["loss"] = record["loss"]
        numbers |= record["metrics"]
        numbers |= self.objective.compute_metrics(self.predictions.tensors())
        if self.embeddings:
            vectors, teacher_vectors = zip(*self.embeddings, strict=True)
            numbers |= embedding_metrics(torch.cat(vectors), torch.cat(teacher_vectors))
        return {name: value for name, value in numbers.items() if math.isfinite(value)}


def embedding_metrics(student: Tensor, teacher: Tensor) -> dict[str, float]:
    """Compare the embeddings of a student and a teacher, (sentences, width).

    ``similarity`` is ``similarity_correlation``. If the widths are equal, ``cosine`` is the mean
    cosine similarity of both embeddings of a sentence, and ``mse`` their mean squared difference.
    """
    metrics = {SIMILARITY: similarity_correlation(student, teacher)}
    if student.shape == teacher.shape:
        pair = student.double(), teacher.double()
        metrics["cosine"] = float(F.cosine_similarity(*pair).mean())
        metrics["mse"] = float(F.mse_loss(*pair))
    return metrics


def similarity_correlation(student: Tensor, teacher: Tensor) -> float:
    """Return the rank correlation of the cosine similarities of all pairs of sentences.

    At most ``MAX_PAIRED`` sentences are used, at equal distances. Widths may differ.
    """
    rows = torch.linspace(0, len(student) - 1, min(MAX_PAIRED, len(student))).round().long()
    pairs = torch.triu_indices(len(rows), len(rows), 1)
    similarities = []
    for vectors in (student, teacher):
        unit = F.normalize(vectors[rows].double(), dim=-1)
        similarities.append((unit @ unit.T)[pairs[0], pairs[1]].numpy())
    return spearman(*similarities)


def _compares_embeddings(objective: TrainingObjective) -> bool:
    """Return whether embeddings are learned from a teacher only."""
    return isinstance(objective, FineTuning) and objective.task.needs_teacher


def _predicted_labels(objective: TrainingObjective, logits: Logits) -> Tensor | None:
    """Return which labels are predicted in multi-label classification; ``None`` for other tasks."""
    if getattr(objective, "problem", None) != "multi_label_classification":
        return None
    values = dense(logits, num_classes(logits))
    _require_numbers(values)
    return values >= 0


def _require_numbers(*values: Tensor) -> None:
    """Raise an error for NaN."""
    # Both models would seem to agree: all-NaN logits have the same argmax.
    for value in values:
        if bool(value.isnan().any()):
            raise NonFiniteError("the student or its teacher returned NaN for held-out data")


def _top_class(logits: Logits, columns: int) -> Tensor:
    """Return the class with the largest logit among the first ``columns`` of each row."""
    if isinstance(logits, Tensor):
        return logits[..., :columns].argmax(-1)
    classes = [part[..., :columns].argmax(-1) for _, part in chunked_logits(logits)]
    return torch.cat(classes)


def load_student(setup: DistillSetup, run: Path) -> nn.Module:
    """Return the module of the student's objective with the final weights of a run."""
    base = setup.objective.base

    def saved_parameters(module: nn.Module) -> list[Tensor]:
        parameters: list[Tensor] = []
        for trained in base.models_to_save(module).values():
            parameters.extend(trained.module.parameters())
        return parameters

    module = build_without_init(
        lambda: base.model(setup.family, setup.model_config), saved_parameters
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
) -> tuple[ModelQuality, list[ModelQuality | None], int]:
    """Return the student's results on held-out data, each teacher's, and the number of rows.

    The result of a teacher without the student's head is ``None``.
    """
    base = setup.objective.base
    teachers = setup.objective.scored_teachers(setup.base)
    main = base.models_to_save(student.to(device))["model"].module
    weights = shared_weights(base, teachers)
    student_quality = ModelQuality(base, weights)
    teacher_qualities: list[ModelQuality | None] = []
    for teacher in teachers:
        quality = None if teacher is None else ModelQuality(teacher.objective, weights)
        teacher_qualities.append(quality)
    batches = setup.eval_batches(DistContext(0, 1, device))
    for batch in batches:
        tensors = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
        output = run_model(student, main, base, tensors, {}, needs_head=True)
        student_quality.add(_losses(output, student), batch.counts)
        inputs = {**tensors, **output.outputs.inputs}
        first_output: ModelOutput | None = None
        for number, teacher in enumerate(teachers):
            quality = teacher_qualities[number]
            if teacher is None or quality is None:
                continue
            teacher_output = teacher.forward(inputs, {})
            quality.add(_losses(teacher_output, teacher_output.model), batch.counts)
            if number == 0:
                first_output = teacher_output
            if first_output is not None and (number or _compares_embeddings(quality.objective)):
                quality.compare(teacher_output, first_output)
        if first_output is not None:
            student_quality.compare(output, first_output)
    return student_quality, teacher_qualities, sum(batch.rows for batch in batches)


def shared_weights(base: TrainingObjective, teachers: Sequence[Teacher | None]) -> dict[str, float]:
    """Return the weight of each loss that the student and all teachers have.

    If only one of several losses is left, its weight is 1.
    """
    shared = dict(base.loss_weights)
    for teacher in teachers:
        if teacher is None:
            continue
        for name in base.loss_weights:
            if name not in teacher.objective.loss_weights:
                shared.pop(name, None)
    if len(shared) == 1 < len(base.loss_weights):
        return dict.fromkeys(shared, 1.0)
    return shared


def _losses(output: ModelOutput, module: Any) -> LossOutput:
    """Return the losses and predictions of an evaluation, including generated predictions."""
    losses = output.objective.loss_with_auxiliary(output.outputs, output.batch)
    generated = output.objective.generated_predictions(module, output.batch)
    return replace(losses, predictions=losses.predictions | generated)
