"""Copies of sharded tensors in the memory of the host, which are written while training goes on."""

from typing import Any

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from zoo.overrides import override
from zoo.training.distributed.parallelize import local_tensor


class ShardStager(DefaultStager):
    """Copies tensors into the copies of the save before.

    torch's stager keeps the memory of copies as well, but makes each tensor anew by Python's
    ``deepcopy``: for a small model, this takes ten times as long as the copy.

    Args:
        on_gpu: whether the tensors are on a GPU; the copies are in pinned memory then.
    """

    def __init__(self, *, on_gpu: bool) -> None:
        options = StagingOptions(
            use_pinned_memory=on_gpu,
            use_shared_memory=False,  # The copies are written by this process.
            use_async_staging=False,  # The next step changes the weights.
            use_non_blocking_copy=on_gpu,
        )
        super().__init__(options)
        self._on_gpu = on_gpu
        self._copies: dict[str, Any] = {}

    @override
    def stage(self, state_dict: dict[str, Any], **kwargs: Any) -> Any:
        if not self._has_same_layout(state_dict):
            copies = super().stage(state_dict, **kwargs)
            assert isinstance(copies, dict), "nothing is copied in a thread"
            self._copies = copies
            return self._copies
        for name, tensor in state_dict.items():
            copy = local_tensor(self._copies[name])
            copy.copy_(local_tensor(tensor), non_blocking=self._on_gpu)
        if self._on_gpu:
            torch.accelerator.synchronize()
        return self._copies

    def _has_same_layout(self, state_dict: dict[str, Any]) -> bool:
        """Return whether the copies have the names, shapes, dtypes and shards of tensors."""
        if state_dict.keys() != self._copies.keys():
            return False
        for name, tensor in state_dict.items():
            copy = self._copies[name]
            same_type = type(copy) is type(tensor) and copy.dtype == tensor.dtype
            if not same_type or copy.shape != tensor.shape:
                return False
            if getattr(copy, "placements", None) != getattr(tensor, "placements", None):
                return False
            if local_tensor(copy).shape != local_tensor(tensor).shape:
                return False
        return True

    @override
    def close(self) -> None:
        super().close()
        self._copies = {}
