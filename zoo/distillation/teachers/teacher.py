"""Teachers: frozen models, their checkpoints, and the batches that they read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import msgspec
import torch
from blake3 import blake3
from torch import Tensor, nn

from zoo.checkpoint import CONFIG, DATA, WEIGHTS, Checkpoint
from zoo.distillation.outputs import ModelOutput
from zoo.errors import UsageError
from zoo.finetuning.base import FineTuning
from zoo.finetuning.labels import label_order
from zoo.inference.load_model import load_model
from zoo.nn.capture import Captured, LayerOutputs, capture
from zoo.nn.heads import VocabularyProjection
from zoo.nn.kernels.row_chunks import Logits
from zoo.objectives.base import TrainingObjective
from zoo.objectives.masked import model_inputs
from zoo.overrides import override

GRAPH_SUFFIX = ".onnx"
PREFIX = "teacher:"  # of tensors that teachers read in place of the student's


@dataclass(frozen=True)
class Teacher:
    """A teacher of a run.

    Its module is in evaluation mode and without gradients, always: it has no dropout, and is no
    part of what is trained or saved.
    """

    reference: str  # reference to the checkpoint, as in the configuration
    checkpoint: Checkpoint
    # objective or task that runs the model; that of the student for a corpus
    objective: TrainingObjective
    dtype: torch.dtype  # dtype of weights and computation
    needs_head: bool  # whether logits are compared
    device: torch.device | None = None  # device of the model; ``None`` for that of the batch

    @cached_property
    def model(self) -> nn.Module:
        """The module, on the CPU until ``run`` moves it."""
        return load_model(self.checkpoint, self.dtype)

    def initial_model(self) -> nn.Module:
        """Return the module in float32, for the weights that a student begins with."""
        if self.checkpoint.is_export:
            raise UsageError(
                f"the student cannot begin with weights of {self.reference}: it is an ONNX graph",
                "--set distillation.init_layers=null begins with new weights",
            )
        if self.dtype == torch.float32:
            return self.model
        return load_model(self.checkpoint, torch.float32)

    def open(self) -> None:
        """Open files before the first batch; by default none."""

    @property
    def digest(self) -> dict[str, str]:
        """BLAKE3 of each file of weights."""
        return weights_digest(self.checkpoint)

    @property
    def fingerprint(self) -> dict[str, str]:
        """BLAKE3 of all that the outputs depend on: weights, configuration, pooling, tokenizer."""
        model = msgspec.json.encode(self.checkpoint.model, order="sorted")
        return {**self.digest, CONFIG: blake3(model).hexdigest()}

    @cached_property
    def label_order(self) -> tuple[int, ...] | None:
        """Index of each label of the student in the model's outputs; ``None`` for the same order,
        and for models without labels or with different ones.
        """
        labels = self.objective.labels if isinstance(self.objective, FineTuning) else ()
        order = label_order(self.checkpoint.config.labels, labels) if labels else None
        return None if order in (None, tuple(range(len(labels)))) else order

    def forward(self, batch: Mapping[str, Tensor], layers: Mapping[str, set[int]]) -> ModelOutput:
        """Return the results for a batch, with labels in the order of the student's."""
        view = self.run(batch, layers)
        return view if self.label_order is None else view.reordered(torch.tensor(self.label_order))

    @torch.no_grad()
    def run(self, batch: Mapping[str, Tensor], layers: Mapping[str, set[int]]) -> ModelOutput:
        """Run the model on a batch."""
        inputs = teacher_batch(batch, self.checkpoint.config)
        target = next(iter(inputs.values())).device
        device = target if self.device in (None, torch.device(target.type)) else self.device
        if next(self.model.parameters()).device != device:
            self.model.to(device)
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
        enabled = torch.is_autocast_enabled(device.type) and self.dtype == torch.float32
        with torch.autocast(device.type, enabled=enabled):
            view = run_model(
                self.model, self.model, self.objective, inputs, layers, self.needs_head
            )
        return view if device == target else MovedOutput.of(view, target)


@dataclass(frozen=True, kw_only=True)
class MovedOutput(ModelOutput):
    """Results of a teacher on another device than its student."""

    source: ModelOutput  # the results on the teacher's device
    device: torch.device  # device of the student

    @classmethod
    def of(cls, view: ModelOutput, device: torch.device) -> "MovedOutput":
        """Return results on another device."""
        captured = {
            name: LayerOutputs({layer: moved(value, device) for layer, value in states.items()})
            for name, states in vars(view.captured).items()
        }
        fields = view.model, view.objective, view.outputs, Captured(**captured), view.batch
        return cls(*fields, source=view, device=device)

    @override
    def reordered(self, order: Tensor) -> "MovedOutput":
        source = self.source.reordered(order)
        return replace(self, source=source, outputs=source.outputs)

    @override
    def logits(self, term: str, *, everywhere: bool) -> Logits:
        """Computed on the teacher's device."""
        return cast(Logits, moved(self.source.logits(term, everywhere=everywhere), self.device))


def moved(value: Any, device: torch.device) -> Any:
    """Return a tensor, or a tuple of tensors, on another device."""
    if isinstance(value, VocabularyProjection):
        return VocabularyProjection(*(moved(part, device) for part in value))
    if isinstance(value, tuple):
        return tuple(moved(part, device) for part in value)
    return value.to(device) if isinstance(value, Tensor) else value


def weights_digest(checkpoint: Checkpoint) -> dict[str, str]:
    """Return BLAKE3 of each file of weights, as the manifest of a checkpoint has them."""
    files = checkpoint.manifest.files
    names = [path.name for path in checkpoint.weight_files()] or [WEIGHTS]
    if checkpoint.is_export:
        names = sorted(name for name in files if name.endswith((GRAPH_SUFFIX, DATA)))
    return {name: files[name].blake3 for name in names if name in files}


def teacher_batch(batch: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Return the tensors that a teacher reads."""
    replaced = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in batch.items()
        if name.startswith(PREFIX)
    }
    tensors = replaced or dict(batch)
    if getattr(config, "type_vocab_size", 0) < 2:
        tensors.pop("token_type_ids", None)
    return tensors


def run_model(
    model: nn.Module,
    main: nn.Module,
    objective: TrainingObjective,
    batch: Mapping[str, Tensor],
    layers: Mapping[str, set[int]],
    needs_head: bool,
) -> ModelOutput:
    """Run a model on a batch, and capture layers."""
    from zoo.objectives.base import Outputs

    with capture(main, **{name: sorted(indices) for name, indices in layers.items()}) as captured:
        if needs_head:
            outputs = objective.forward(model, batch)
        else:
            encode: Any = getattr(main, "encode", None)
            if encode is None:
                raise UsageError("a model without a text encoder is compared by logits alone")
            encode(**encoder_inputs(batch))
            outputs = Outputs({})
    return ModelOutput(main, objective, outputs, captured, batch)


def encoder_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the arguments of an encoder among the tensors of a batch."""
    mask = "attention_mask"
    return {**model_inputs(batch), **({mask: batch[mask]} if mask in batch else {})}
