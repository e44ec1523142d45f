"""A teacher whose outputs are read from a cache; missing ones are computed and added."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

from zoo.distillation.logits import TopLogits, dense, top_logits
from zoo.distillation.outputs import ModelOutput, first_tokens, real_tokens
from zoo.distillation.teachers.record_file import KEY_BYTES
from zoo.distillation.teachers.teacher import Teacher, teacher_batch
from zoo.distillation.teachers.teacher_cache import TeacherCache
from zoo.errors import VerificationError
from zoo.nn.capture import Captured
from zoo.nn.row_chunks import Logits
from zoo.objectives.base import Outputs
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.overrides import override

Bytes = NDArray[np.uint8]
NUMBER = "<f4"  # of logits and states
POSITIONS = "label_positions"
LABELS = "labels"


class CachedOutput(ABC):
    """An output of a teacher in the cache: some vectors for each row."""

    name: str

    @property
    @abstractmethod
    def width(self) -> int | None:
        """Number of bytes per vector; ``None`` if it follows from the model."""

    @abstractmethod
    def positions(self, batch: Mapping[str, Tensor], ids: str) -> list[NDArray[np.int64]]:
        """Return the positions of each row's vectors; ``ids`` names the teacher's first input."""

    @abstractmethod
    def encode(self, output: ModelOutput) -> Bytes:
        """Return the vectors of a forward pass, (n, bytes)."""

    @abstractmethod
    def decode(self, data: Bytes, device: torch.device) -> Any:
        """Return the vectors of a batch, (n, bytes), in the form that losses read."""


@dataclass(frozen=True)
class CachedLogits(CachedOutput):
    """The largest logits at each compared position, or all of them if there are few."""

    of: str  # loss of the objective that the logits belong to
    everywhere: bool  # at all tokens of text, instead of the predicted positions
    top_k: int  # number of logits per position
    columns: int  # number of classes
    temperatures: tuple[float, ...]  # at which the other logits are summed

    @property
    @override
    def name(self) -> str:  # type: ignore[override]
        return f"logits:{self.of}:{'all' if self.everywhere else 'predicted'}"

    @property
    def shape(self) -> dict[str, Any]:
        """The fields of the header that describe logits."""
        return {
            "top_k": self.top_k,
            "classes": self.columns,
            "temperatures": list(self.temperatures),
        }

    @property
    def class_dtype(self) -> str:
        """Dtype of the classes' indices."""
        return "<u2" if self.columns <= 1 << 16 else "<u4"

    @property
    @override
    def width(self) -> int:
        if self.top_k == self.columns:
            return 4 * self.columns
        classes = np.dtype(self.class_dtype).itemsize * self.top_k
        return 4 * self.top_k + classes + 4 * len(self.temperatures)

    @override
    def positions(self, batch: Mapping[str, Tensor], ids: str) -> list[NDArray[np.int64]]:
        """A task with a single vector for each row has it at position 0."""
        rows, length = batch[ids].shape[:2]
        if self.everywhere:
            scored = real_tokens(batch, ids)
        elif POSITIONS in batch:
            scored = torch.zeros(rows * length, dtype=torch.bool)
            scored[batch[POSITIONS].cpu()] = True
            scored = scored.view(rows, length)
        elif LABELS in batch and batch[LABELS].shape == batch[ids].shape[:2]:
            scored = batch[LABELS] != IGNORED
        else:
            return [np.zeros(1, np.int64)] * rows
        return [np.flatnonzero(row) for row in scored.cpu().numpy()]

    @override
    def encode(self, output: ModelOutput) -> Bytes:
        logits: Logits = output.logits(self.of, everywhere=self.everywhere)
        if self.top_k == self.columns:
            return _bytes(dense(logits, self.columns), NUMBER)
        top = top_logits(logits, self.top_k, columns=self.columns, temperatures=self.temperatures)
        others = torch.stack([top.others[t] for t in self.temperatures], -1)
        parts = (top.values, NUMBER), (top.classes, self.class_dtype), (others, NUMBER)
        return np.concatenate([_bytes(tensor, dtype) for tensor, dtype in parts], axis=1)

    @override
    def decode(self, data: Bytes, device: torch.device) -> Tensor | TopLogits:
        if self.top_k == self.columns:
            return _tensor(data, NUMBER, device)
        ends = np.cumsum([4 * self.top_k, np.dtype(self.class_dtype).itemsize * self.top_k])
        values, classes, others = np.split(data, ends.tolist(), axis=1)
        columns = _tensor(others, NUMBER, device).unbind(-1)
        return TopLogits(
            _tensor(values, NUMBER, device),
            _tensor(classes, self.class_dtype, device),
            dict(zip(self.temperatures, columns, strict=True)),
            self.columns,
        )


@dataclass(frozen=True)
class CachedEmbeddings(CachedOutput):
    """The embeddings of the texts in each row."""

    of: str | None  # output of the head; ``None`` for means of hidden states

    @property
    @override
    def name(self) -> str:  # type: ignore[override]
        return f"embeddings:{self.of or 'mean'}"

    @property
    @override
    def width(self) -> None:
        """``None``: embeddings are as wide as the model."""

    @override
    def positions(self, batch: Mapping[str, Tensor], ids: str) -> list[NDArray[np.int64]]:
        return [np.flatnonzero(row) for row in first_tokens(batch, ids).cpu().numpy()]

    @override
    def encode(self, output: ModelOutput) -> Bytes:
        vectors = output.outputs.logits[self.of] if self.of else output.text_embeddings()
        return _bytes(vectors.float(), NUMBER)

    @override
    def decode(self, data: Bytes, device: torch.device) -> Tensor:
        return _tensor(data, NUMBER, device)


def _bytes(tensor: Tensor, dtype: str) -> Bytes:
    array = np.ascontiguousarray(tensor.cpu().numpy().astype(dtype))
    return array.view(np.uint8).reshape(len(array), -1)


def _tensor(data: Bytes, dtype: str, device: torch.device) -> Tensor:
    array = np.ascontiguousarray(data).view(dtype)
    native = array.astype(np.float32 if dtype == NUMBER else np.int64)
    return torch.from_numpy(native).to(device)


@dataclass(frozen=True)
class StoredOutput(ModelOutput):
    """Outputs of a teacher that come from its cache."""

    values: Mapping[str, Any] = field(default_factory=dict)  # name of an output -> its vectors

    @override
    def reordered(self, order: Tensor) -> "StoredOutput":
        """Reorder classes after reading: the cache has the teacher's order."""
        values = dict(self.values)
        for name, value in self.values.items():
            if not name.startswith("logits:"):
                continue
            if isinstance(value, TopLogits):
                classes = order.argsort().to(value.classes.device)[value.classes]
                values[name] = replace(value, classes=classes)
            else:
                values[name] = value.index_select(-1, order.to(value.device))
        return replace(self, values=values)

    @override
    def logits(self, term: str, *, everywhere: bool) -> Any:
        """Return ``TopLogits`` if the cache does not hold all logits."""
        return self.values[f"logits:{term}:{'all' if everywhere else 'predicted'}"]

    @override
    def text_embeddings(self) -> Tensor:
        vectors: Tensor = self.values["embeddings:mean"]
        return vectors


@dataclass(frozen=True, kw_only=True)
class CachedTeacher(Teacher):
    """A teacher whose outputs are cached."""

    source: Teacher  # computes missing outputs
    cache: TeacherCache
    outputs: tuple[CachedOutput, ...]

    @override
    def open(self) -> None:
        initialized = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.cache.open(torch.distributed.get_rank() if initialized else 0)

    @torch.no_grad()
    @override
    def run(self, batch: Mapping[str, Tensor], layers: Mapping[str, set[int]]) -> ModelOutput:
        inputs = teacher_batch(batch, self.checkpoint.config)
        spec = self.checkpoint.onnx_spec
        names = [name for name in spec.inputs if name in inputs and name != "attention_mask"]
        device = inputs[names[0]].device
        self.open()
        locations = [output.positions(inputs, names[0]) for output in self.outputs]
        keys = [
            row_keys(output.name, inputs, names, rows)
            for output, rows in zip(self.outputs, locations, strict=True)
        ]
        if any(self.cache.get(key) is None for row in keys for key in row):
            self._add(self.source.run(batch, layers), keys, locations)
        values = {
            output.name: output.decode(self._read(output, keys_of_rows, rows), device)
            for output, keys_of_rows, rows in zip(self.outputs, keys, locations, strict=True)
        }
        vectors = {
            output.of: values[output.name]
            for output in self.outputs
            if isinstance(output, CachedEmbeddings) and output.of is not None
        }
        return StoredOutput(None, self.objective, Outputs(vectors), Captured(), inputs, values)

    def _add(
        self,
        computed: ModelOutput,
        keys: Sequence[Sequence[bytes]],
        locations: Sequence[Sequence[NDArray[np.int64]]],
    ) -> None:
        for output, keys_of_rows, rows in zip(self.outputs, keys, locations, strict=True):
            ends = np.cumsum([len(row) for row in rows])
            data = output.encode(computed)
            assert len(data) == ends[-1], "there is one position for each vector"
            for key, vectors in zip(keys_of_rows, np.split(data, ends[:-1]), strict=True):
                self.cache.add(key, vectors)

    def _read(
        self, output: CachedOutput, keys: Sequence[bytes], rows: Sequence[NDArray[np.int64]]
    ) -> Bytes:
        """Return the vectors of a batch, (n, bytes)."""
        records = [self.cache.get(key) for key in keys]
        counts = [len(row) for row in rows]
        width = output.width or max(
            (
                len(data) // count
                for data, count in zip(records, counts, strict=True)
                if data is not None and count
            ),
            default=0,
        )
        vectors = []
        for record, count in zip(records, counts, strict=True):
            assert record is not None, "run adds the missing ones"
            if len(record) != count * width or (count and not width):
                raise VerificationError(
                    f"{self.cache.directory}: a record has {len(record):,} bytes for {count} "
                    f"vectors of {width} bytes",
                    self.cache.remedy,
                )
            vectors.append(record.reshape(count, width))
        return np.concatenate(vectors)


def row_keys(
    output: str,
    inputs: Mapping[str, Tensor],
    names: Sequence[str],
    positions: Sequence[NDArray[np.int64]],
) -> list[bytes]:
    """Return the key of each row; ``names`` are the teacher's inputs, ids first."""
    # The key of a row is the BLAKE3 digest of all that the teacher reads: ids up to the padding,
    # token types, document ids, and the positions whose outputs are compared. If a row of a
    # micro-batch is missing, the whole micro-batch is computed: rounding depends on the shape of a
    # batch, and a resumed run has to compute what the first one did.
    #
    # A key does not depend on the other rows of a batch, which decide whether there is padding, and
    # whether there are document ids and token types.
    real = real_tokens(inputs, names[0]).cpu().numpy()
    arrays = {name: inputs[name].cpu().numpy() for name in names}
    if "document_ids" in inputs:
        arrays["document_ids"] = inputs["document_ids"].cpu().numpy() - 1
    keys = []
    for row, locations in enumerate(positions):
        digest = blake3(output.encode())
        _add_array(digest, "positions", locations)
        _add_array(digest, "lengths", real[row].sum(-1))
        for name, array in arrays.items():
            values = array[row][real[row]]
            if name == names[0] or values.any():
                _add_array(digest, name, values)
        keys.append(digest.digest(KEY_BYTES))
    return keys


def _add_array(digest: Any, name: str, array: Any) -> None:
    content = np.ascontiguousarray(array, dtype="<i8").tobytes()
    digest.update(f"\0{name}\0{len(content)}\0".encode())
    digest.update(content)
