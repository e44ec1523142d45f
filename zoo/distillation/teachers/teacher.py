"""Teachers: frozen models in torch, and the batches that they read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import msgspec
import torch
from blake3 import blake3
from torch import Tensor, nn

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import CONFIG, DATA, WEIGHTS, Checkpoint
from zoo.distillation.outputs import ModelOutput
from zoo.errors import UsageError
from zoo.finetuning.labels import label_order
from zoo.finetuning.objective import FineTuning
from zoo.inference.load_model import load_model
from zoo.io.digests.files import FileDigest
from zoo.nn.capture import Captured, LayerOutputs, capture
from zoo.nn.heads import VocabularyProjection
from zoo.nn.row_chunks import Logits
from zoo.objectives.base import TrainingObjective
from zoo.objectives.masked import model_inputs
from zoo.overrides import override
from zoo.sentence_models.module_weights import module_weight_files

GRAPH_SUFFIX = ".onnx"
SAFETENSORS = ".safetensors"
MASK = "attention_mask"
PREFIX = "teacher:"  # Tensors that replace the student's for teachers begin with it.


@dataclass(frozen=True)
class Teacher:
    """A teacher of a run.

    Its module always runs in evaluation mode and without gradients. It is not trained or saved.

    Attributes:
        reference: the reference that the configuration has.
        checkpoint: the model.
        objective: the objective that runs the model; the student's own for a corpus.
        dtype: dtype of weights and computation.
        needs_head: whether outputs of the head are compared.
        device: device of the module; ``None`` to follow the batch.
    """

    reference: str
    checkpoint: Checkpoint
    objective: TrainingObjective
    dtype: torch.dtype
    needs_head: bool
    device: torch.device | None = None

    @cached_property
    def model(self) -> nn.Module:
        """The module, on the CPU until ``run`` moves it."""
        return load_model(self.checkpoint, self.dtype)

    def initial_model(self) -> nn.Module:
        """Return the module in float32, from which a student's initial weights are copied."""
        if self.checkpoint.is_export:
            raise UsageError(
                f"the student cannot start from weights of {self.reference}: it is an ONNX graph",
                "--set distillation.init_layers=null starts with new weights",
            )
        if self.dtype == torch.float32:
            return self.model
        return load_model(self.checkpoint, torch.float32)

    def open(self) -> None:
        """Open files before the first batch; by default, there are none."""

    @property
    def digest(self) -> dict[str, str]:
        """BLAKE3 of each file of weights."""
        return weights_digest(self.checkpoint)

    @property
    def fingerprint(self) -> dict[str, str]:
        """BLAKE3 of what the outputs depend on: weights, configuration, pooling and tokenizer."""
        model = msgspec.json.encode(self.checkpoint.model, order="sorted")
        return {**self.digest, CONFIG: blake3(model).hexdigest()}

    @cached_property
    def label_order(self) -> tuple[int, ...] | None:
        """Index of each of the student's labels in the teacher's outputs.

        ``None`` if the order is the same, or if the models do not have the same labels.
        """
        if not isinstance(self.objective, FineTuning) or not self.objective.labels:
            return None
        labels = self.objective.labels
        order = label_order(self.checkpoint.config.labels, labels)
        is_same_order = order == tuple(range(len(labels)))
        return None if is_same_order else order

    def forward(self, batch: Mapping[str, Tensor], layers: Mapping[str, set[int]]) -> ModelOutput:
        """Run the teacher on a batch, and return its labels in the student's order."""
        output = self.run(batch, layers)
        if self.label_order is None:
            return output
        return output.reordered(torch.tensor(self.label_order))

    @torch.no_grad()
    def run(self, batch: Mapping[str, Tensor], layers: Mapping[str, set[int]]) -> ModelOutput:
        """Run the model on a batch; see ``forward``."""
        inputs = teacher_batch(batch, self.checkpoint.config)
        target = next(iter(inputs.values())).device
        device = target
        if self.device is not None and self.device != torch.device(target.type):
            device = self.device
        if next(self.model.parameters()).device != device:
            self.model.to(device)
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
        enabled = torch.is_autocast_enabled(device.type) and self.dtype == torch.float32
        with torch.autocast(device.type, enabled=enabled):
            output = run_model(
                self.model, self.model, self.objective, inputs, layers, self.needs_head
            )
        return output if device == target else MovedOutput.to_device(output, target)


@dataclass(frozen=True, kw_only=True)
class MovedOutput(ModelOutput):
    """Outputs of a teacher whose device differs from the student's."""

    source: ModelOutput  # The outputs on the teacher's device.
    device: torch.device  # The student's device.

    @classmethod
    def to_device(cls, source: ModelOutput, device: torch.device) -> "MovedOutput":
        """Return outputs on another device."""
        captured: dict[str, LayerOutputs[Any]] = {}
        for name, states in vars(source.captured).items():
            values = {layer: copy_to_device(value, device) for layer, value in states.items()}
            captured[name] = LayerOutputs(values)
        return cls(
            model=source.model,
            objective=source.objective,
            outputs=source.outputs,
            captured=Captured(**captured),
            batch=source.batch,
            source=source,
            device=device,
        )

    @override
    def reordered(self, order: Tensor) -> "MovedOutput":
        source = self.source.reordered(order)
        return replace(self, source=source, outputs=source.outputs)

    @override
    def logits(self, term: str, *, everywhere: bool) -> Logits:
        """Compute logits on the teacher's device, and move them."""
        logits = self.source.logits(term, everywhere=everywhere)
        return cast(Logits, copy_to_device(logits, self.device))


def copy_to_device(value: Any, device: torch.device) -> Any:
    """Return tensors, possibly in tuples, on another device."""
    if isinstance(value, VocabularyProjection):
        return VocabularyProjection(*(copy_to_device(part, device) for part in value))
    if isinstance(value, tuple):
        return tuple(copy_to_device(part, device) for part in value)
    return value.to(device) if isinstance(value, Tensor) else value


def weights_digest(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the BLAKE3 digest of each file of weights, from the manifest."""
    return {name: digest.blake3 for name, digest in files_of_weights(checkpoint).items()}


def files_of_weights(checkpoint: Checkpoint) -> dict[str, FileDigest]:
    """Return the files of weights, of an adapter with those of its base."""
    files = checkpoint.manifest.files
    if isinstance(checkpoint, AdaptedCheckpoint):
        digests = files_of_weights(checkpoint.base)
        for name, digest in files.items():
            if name.endswith(SAFETENSORS):
                digests[name] = digest
        return digests
    names = [path.name for path in checkpoint.weight_files()] or [WEIGHTS]
    names += module_weight_files(checkpoint.model.pooling)
    if checkpoint.is_export:
        names = sorted(name for name in files if name.endswith((GRAPH_SUFFIX, DATA)))
    return {name: files[name] for name in names if name in files}


def teacher_batch(batch: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Return the tensors that a teacher reads, without token types if its ``config`` has none."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in batch.items():
        if name.startswith(PREFIX):
            tensors[name.removeprefix(PREFIX)] = tensor
    if not tensors:
        tensors = dict(batch)
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
    """Run a model on a batch, and capture layers of ``main``, the model within ``model``."""
    from zoo.objectives.base import Outputs

    with capture(main, **{name: sorted(indices) for name, indices in layers.items()}) as captured:
        if needs_head:
            outputs = objective.forward(model, batch)
        else:
            encode: Any = getattr(main, "encode", None)
            if encode is None:
                raise UsageError("a model without a text encoder can only be compared by logits")
            encode(**encoder_inputs(batch))
            outputs = Outputs({})
    return ModelOutput(main, objective, outputs, captured, batch)


def encoder_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the arguments of an encoder from the tensors of a batch."""
    inputs = model_inputs(batch)
    if MASK in batch:
        inputs[MASK] = batch[MASK]
    return inputs
