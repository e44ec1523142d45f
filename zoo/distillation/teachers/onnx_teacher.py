"""Teachers in ONNX Runtime, which return logits but no hidden states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.checkpoint import Checkpoint
from zoo.distillation.losses.base import DistillationLoss
from zoo.distillation.outputs import ModelOutput, TeacherLogits, first_tokens, real_tokens
from zoo.distillation.teachers.teacher import Teacher, teacher_batch
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.families.onnx import LOGITS
from zoo.finetuning.objective import FineTuning
from zoo.inference import QUANTIZED
from zoo.inference.exported import read_export_info
from zoo.inference.processing.batching import plan_batches
from zoo.inference.session import Session
from zoo.nn.capture import Captured, LayerOutputs
from zoo.objectives.base import TrainingObjective
from zoo.overrides import override

IDS = "input_ids"
MASK = "attention_mask"
OBJECTIVES = ("masked-lm", "causal-lm")
OTHERWISE = "--teacher-backend cpu runs it in torch"


class OnnxModel(nn.Module):
    """A session with the interface of the modules that objectives run."""

    # ``encode`` returns logits in place of hidden states, and ``scores`` returns its argument, so
    # that objectives select positions as usual.

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Return the outputs by name, on the device of the inputs."""
        device = next(iter(inputs.values())).device
        arrays = {name: tensor.cpu().numpy() for name, tensor in inputs.items()}
        return {
            name: torch.from_numpy(array).to(device)
            for name, array in self.session.run(arrays).items()
        }

    def encode(self, **inputs: Tensor) -> Tensor:
        """Return the logits of packed rows, (rows, tokens, vocabulary); 0 for padding."""
        texts = UnpackedTexts.of(inputs)
        names = [name for name in self.session.inputs if name in inputs]
        arrays = {name: inputs[name].cpu().numpy().reshape(-1) for name in names}
        logits: NDArray[Any] | None = None
        for numbers in plan_batches(texts.lengths.tolist()):
            tokens, index = texts.padded(numbers)
            batch = {name: np.where(tokens, array[index], 0) for name, array in arrays.items()}
            if MASK in self.session.inputs:
                batch[MASK] = tokens.astype(np.int64)
            output = self.session.run(batch, [LOGITS])[LOGITS]
            if logits is None:
                logits = np.zeros((inputs[IDS].numel(), output.shape[-1]), np.float32)
            logits[index[tokens]] = output[tokens]
        assert logits is not None, "a batch has a text"
        return torch.from_numpy(logits).view(*inputs[IDS].shape, -1).to(inputs[IDS].device)

    @staticmethod
    def scores(logits: Tensor) -> Tensor:
        """Return the logits that ``encode`` computed."""
        return logits


@dataclass(frozen=True)
class UnpackedTexts:
    """The texts of packed rows."""

    # Graphs do not take document ids. Packed rows are therefore split into texts and padded on the
    # right; afterwards, the logits are put back in the places of their tokens.

    starts: NDArray[np.int64]  # first token of each text in the flattened rows, (texts,)
    lengths: NDArray[np.int64]  # number of tokens of each text, (texts,)

    @classmethod
    def of(cls, batch: Mapping[str, Tensor]) -> "UnpackedTexts":
        """Return the texts of a batch; without document ids, each row is a text."""
        starts = np.flatnonzero(first_tokens(batch).cpu().numpy())
        real = real_tokens(batch).cpu().numpy().reshape(-1)
        text = np.searchsorted(starts, np.flatnonzero(real), side="right") - 1
        return cls(starts, np.bincount(text, minlength=len(starts)))

    def padded(self, numbers: Sequence[int]) -> "tuple[NDArray[np.bool_], NDArray[np.int64]]":
        """Return which elements of a padded batch are tokens, and their indices in the rows."""
        # Both are (texts, tokens); ``numbers`` selects the texts. Indices of padding are 0.
        place = np.arange(self.lengths[numbers].max())
        tokens = place < self.lengths[numbers][:, None]
        return tokens, np.where(tokens, self.starts[numbers][:, None] + place, 0)


@dataclass(frozen=True)
class OnnxTeacher(Teacher):
    """A teacher in ONNX Runtime."""

    @cached_property
    def onnx_model(self) -> OnnxModel:
        """The session, of the directory itself or of a graph that is exported on first use."""
        dtype = str(self.dtype).removeprefix("torch.")
        threads = torch.get_num_threads()
        return OnnxModel(open_session(self.checkpoint, "onnx", dtype=dtype, threads=threads))

    @override
    def open(self) -> None:
        """Export the graph, unless it was exported before."""
        assert self.onnx_model is not None

    @torch.no_grad()
    @override
    def run(self, batch: Mapping[str, Tensor], layers: Mapping[str, set[int]]) -> ModelOutput:
        # logits take the place of the last hidden state, the only layer that may be requested
        inputs = teacher_batch(batch, self.checkpoint.config)
        model = self.onnx_model
        if not isinstance(self.objective, FineTuning):
            logits = model.encode(**inputs)
            captured = Captured(hidden=LayerOutputs({-1: logits}))
            model_of_logits: Any = _Encoded(logits)
            outputs = self.objective.forward(model_of_logits, inputs)
            return ModelOutput(model, self.objective, outputs, captured, inputs)
        outputs = self.objective.forward(model, inputs)
        return ModelOutput(model, self.objective, outputs, Captured(), inputs)


class _Encoded(nn.Module):
    """A model that returns logits that were computed before."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def encode(self, **_: Tensor) -> Tensor:
        return self.logits

    scores = staticmethod(OnnxModel.scores)


def require_onnx(
    reference: str,
    checkpoint: Checkpoint,
    objective: TrainingObjective,
    losses: Sequence[DistillationLoss],
    dtype: str,
) -> None:
    """Check that a teacher can run in ONNX Runtime."""
    for loss in losses:
        if not isinstance(loss.teacher_output, TeacherLogits):
            raise UsageError(
                f"the term {loss.term_name} compares {loss.name}, but a teacher in ONNX Runtime "
                "only returns logits",
                f"leave the term out; {OTHERWISE}",
            )
    inputs = checkpoint.onnx_spec.inputs
    text = not isinstance(objective, FineTuning)
    if "decoder_input_ids" in inputs or (text and objective.name not in OBJECTIVES):
        raise UsageError(
            f"teachers for {objective.name} do not run in ONNX Runtime",
            f"{', '.join(OBJECTIVES)} and classifiers do; {OTHERWISE}",
        )
    if dtype == "bfloat16":
        raise UsageError(
            "ONNX Runtime computes in float32 or float16, and teacher_dtype is bfloat16", OTHERWISE
        )
    stored = next(iter(read_export_info(checkpoint).dtypes)) if checkpoint.is_export else dtype
    if stored in QUANTIZED:
        raise UsageError(
            f"the teacher {reference} has no graph in float32 or float16",
            "export it without --only, or give the model",
        )
    if stored != dtype:
        raise UsageError(
            f"the teacher {reference} is a graph in {stored}, not {dtype}",
            f"--set distillation.teacher_dtype={stored}",
        )
