"""Copies of batches to the device, which overlap with the computation of the step before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from zoo.objectives.base import Batch


@dataclass(frozen=True)
class PendingBatches:
    """Batches whose copies to the device may not be finished."""

    batches: list[Batch]  # the batches, with tensors on the device
    copied: torch.cuda.Event | None = None  # event after the copies; ``None`` where there were none


class DeviceTransfer:
    """Copies batches to a CUDA device, from pinned memory and on a stream of its own."""

    # Batches for a CPU stay as they are.

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def start(self, batches: Sequence[Batch]) -> PendingBatches:
        """Start to copy batches; any thread may call it, one step ahead."""
        if self._stream is None:
            return PendingBatches(list(batches))
        with torch.cuda.stream(self._stream):
            copies = []
            for batch in batches:
                tensors = {}
                for name, tensor in batch.tensors.items():
                    tensors[name] = tensor.pin_memory().to(self.device, non_blocking=True)
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
        return pending.batches
