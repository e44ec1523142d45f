"""The processes of a run: one, or as many as ``torchrun`` started."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import distributed

from zoo.nn.devices import resolve_device


@dataclass(frozen=True)
class DistContext:
    """This process among those of a run.

    Attributes:
        rank: its number.
        count: how many there are.
        device: what it computes on.
    """

    rank: int
    world_size: int
    device: torch.device

    @classmethod
    def initialize(cls, device: str | None = None) -> "DistContext":
        """Meet the other processes, if ``torchrun`` (or SLURM through it) started several.

        Args:
            device: what to compute on; by default CUDA where there is one.

        Raises:
            UsageError: there is no such device.
        """
        local = int(os.environ.get("LOCAL_RANK", 0))
        kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        place = resolve_device("auto", f"cuda:{local}" if kind == "cuda" else kind)
        count = int(os.environ.get("WORLD_SIZE", 1))
        if place.type == "cuda":
            torch.cuda.set_device(place)
        if count > 1 and not distributed.is_initialized():
            distributed.init_process_group("nccl" if place.type == "cuda" else "gloo")
        return cls(int(os.environ.get("RANK", 0)), count, place)

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum_counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Add up counts over all processes."""
        if self.world_size == 1:
            return dict(counts)
        summed = self.all_reduce(torch.tensor(list(counts.values()), dtype=torch.int64))
        return dict(zip(counts, summed.tolist(), strict=True))

    def all_reduce(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all processes."""
        if self.world_size == 1:
            return values
        values = values.to(self.device)
        distributed.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        if self.world_size == 1:
            return flag
        return bool(self.all_reduce(torch.tensor([int(flag)])).item())

    def gather_rows(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Put the rows of all processes together, in order, on the CPU."""
        own = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        if self.world_size == 1 or not self.any(bool(own)):
            return own
        parts: Sequence[dict[str, torch.Tensor]] = [{} for _ in range(self.world_size)]
        distributed.all_gather_object(parts, own)
        return {name: torch.cat([part[name] for part in parts]) for name in own}

    def broadcast(self, value: str) -> str:
        """Return what the first process says, in all of them."""
        said = [value]
        if self.world_size > 1:
            distributed.broadcast_object_list(said)
        return said[0]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.world_size > 1:
            distributed.barrier()

    def is_peer_failure(self, error: Exception) -> bool:
        """Whether an error says that another process has ended before its time."""
        told = isinstance(error, distributed.DistError) or "gloo" in str(error)
        return self.world_size > 1 and told  # gloo's errors have no class of their own

    def destroy(self) -> None:
        """Part from the others."""
        if self.world_size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()
