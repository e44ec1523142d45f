"""Batches on a device: copies that overlap with a step, one shape, deterministic kernels."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.packed_attention import attach_offsets, attached_offsets, document_offsets
from zoo.objectives.base import Batch, Example, Objective
from zoo.objectives.losses.cross_entropy import IGNORED

DOCUMENT_IDS = "document_ids"  # Names of tensors with document ids end in it.


@dataclass(frozen=True)
class PendingBatches:
    """Batches whose copies to the device may not be finished."""

    batches: list[Batch]  # the batches, with tensors on the device
    copied: torch.cuda.Event | None = None  # event after the copies; ``None`` where there were none


class DeviceTransfer:
    """Copies batches to a CUDA device, from pinned memory and on a stream of its own.

    The offsets of packed documents are computed on the host and copied as well: on the device,
    their number would have to be waited for.
    """

    # Batches for a CPU stay as they are.

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def start(self, batches: Sequence[Batch]) -> PendingBatches:
        """Start to copy batches; any thread may call it, one step ahead."""
        if self._stream is None:
            for batch in batches:
                for name, tensor in batch.tensors.items():
                    if name.endswith(DOCUMENT_IDS):
                        attach_offsets(tensor, document_offsets(tensor))
            return PendingBatches(list(batches))
        with torch.cuda.stream(self._stream):
            copies = []
            for batch in batches:
                tensors = {}
                for name, tensor in batch.tensors.items():
                    tensors[name] = self._copy(tensor)
                    if name.endswith(DOCUMENT_IDS):
                        attach_offsets(tensors[name], self._copy(document_offsets(tensor)))
                copies.append(replace(batch, tensors=tensors))
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        return PendingBatches(copies, copied)

    def finish(self, pending: PendingBatches) -> list[Batch]:
        """Return the batches, for use on the current stream, which waits for the copies."""
        if pending.copied is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(pending.copied)
            for batch in pending.batches:
                for tensor in batch.tensors.values():
                    tensor.record_stream(stream)  # Memory is reused only after its use there.
                    offsets = attached_offsets(tensor)
                    if offsets is not None:
                        offsets.record_stream(stream)
        return pending.batches

    def _copy(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)


@contextlib.contextmanager
def deterministic_algorithms(enabled: bool) -> Iterator[None]:
    """Use deterministic kernels on CUDA, where the faster ones add in an order that varies."""
    if not enabled:  # Setting it, even to the same value, imports the compiler.
        yield
        return
    # cuBLAS reads it when it is first used; see torch.use_deterministic_algorithms.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    was_enabled = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_enabled)


def collate_static(objective: Objective, examples: Sequence[Example]) -> Batch:
    """Collate examples into a batch whose shapes only depend on their number and length.

    Rows have different numbers of predicted tokens. Their positions and labels are padded to the
    largest number that rows can have: with position 0, and with labels that count for no loss and
    no metric.
    """
    batch = objective.collate(examples)
    tensors = dict(batch.tensors)
    for name, most in objective.max_values(batch).items():
        values = batch.tensors[name]
        size = batch.rows * most
        padding = size - len(values)
        assert padding >= 0, f"{name} has {len(values)} values, more than the {size} of full rows"
        fill = IGNORED if name.endswith("labels") else 0
        tensors[name] = F.pad(values, (0, padding), value=fill)
    return replace(batch, tensors=tensors)
