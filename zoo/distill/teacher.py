"""Teachers: frozen models, their checkpoints, and the batches that they read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from zoo.checkpoint import WEIGHTS, Checkpoint
from zoo.distill.comparisons import ModelView
from zoo.errors import UsageError
from zoo.inference.load_model import load_model
from zoo.nn.capture import capture
from zoo.objectives.base import TrainingObjective
from zoo.objectives.masked import model_inputs

PREFIX = "teacher:"  # of tensors that teachers read in place of the student's


@dataclass(frozen=True)
class Teacher:
    """A teacher of a run.

    Its module is in evaluation mode and without gradients, always: it has no dropout, and is no
    part of what is trained or saved.

    Attributes:
        reference: reference to the checkpoint, as in the configuration.
        checkpoint: the checkpoint.
        objective: objective or task that runs the model; that of the student for a corpus.
        dtype: dtype of weights and computation.
        needs_head: whether logits are compared.
    """

    reference: str
    checkpoint: Checkpoint
    objective: TrainingObjective
    dtype: torch.dtype
    needs_head: bool

    @cached_property
    def model(self) -> nn.Module:
        """The module, on the CPU until ``view`` moves it."""
        return load_model(self.checkpoint, self.dtype)

    @property
    def digest(self) -> dict[str, str]:
        """BLAKE3 of each file of weights."""
        return weights_digest(self.checkpoint)

    @torch.no_grad()
    def view(self, batch: Mapping[str, Tensor], layers: Mapping[str, set[int]]) -> ModelView:
        """Run the model on a batch.

        Args:
            batch: tensors of a batch; those with the prefix ``teacher:`` replace all others.
            layers: layers to capture.
        """
        inputs = teacher_batch(batch, self.checkpoint.config)
        device = next(iter(inputs.values())).device
        if next(self.model.parameters()).device != device:
            self.model.to(device)
        enabled = torch.is_autocast_enabled(device.type) and self.dtype == torch.float32
        with torch.autocast(device.type, enabled=enabled):
            return run_model(
                self.model, self.model, self.objective, inputs, layers, self.needs_head
            )


def weights_digest(checkpoint: Checkpoint) -> dict[str, str]:
    """Return BLAKE3 of each file of weights, as the manifest of a checkpoint has them."""
    files = checkpoint.manifest.files
    names = [path.name for path in checkpoint.weight_files()] or [WEIGHTS]
    return {name: files[name].blake3 for name in names if name in files}


def teacher_batch(batch: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Return the tensors that a teacher reads.

    Args:
        batch: tensors of a batch.
        config: configuration of the teacher; without segment embeddings, it reads no types.
    """
    replaced = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in batch.items()
        if name.startswith(PREFIX)
    }
    tensors = replaced or dict(batch)
    if not getattr(config, "type_vocab_size", 0):
        tensors.pop("token_type_ids", None)
    return tensors


def run_model(
    model: nn.Module,
    main: nn.Module,
    objective: TrainingObjective,
    batch: Mapping[str, Tensor],
    layers: Mapping[str, set[int]],
    needs_head: bool,
) -> ModelView:
    """Run a model on a batch, and capture layers.

    Args:
        model: module that ``objective.forward`` takes.
        main: the model among its submodules, or itself.
        objective: the objective.
        batch: tensors of the batch.
        layers: argument of ``capture`` -> indices.
        needs_head: whether outputs of the head are used; otherwise the backbone runs alone.

    Raises:
        UsageError: the model has no such layers.
    """
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
    return ModelView(main, objective, outputs, captured, batch)


def encoder_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the arguments of an encoder among the tensors of a batch."""
    mask = "attention_mask"
    return {**model_inputs(batch), **({mask: batch[mask]} if mask in batch else {})}
