"""Checkpoints that are written while training goes on."""

import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from zoo.errors import UsageError, ZooError
from zoo.hub.files import map_os_errors
from zoo.io.output.atomic import atomic_directory
from zoo.io.remote.publish import publish_changes
from zoo.training.distributed.context import DistContext
from zoo.training.logging.jsonl import JsonlLogger
from zoo.training.state.checkpoints import (
    DISK_FULL_HINT,
    CheckpointMeta,
    Tensors,
    flat_shards,
    is_sharded,
    library_errors,
    prune_checkpoints,
    save_checkpoint,
    shard_writer,
    write_main_files,
)
from zoo.training.state.progress import checkpoint_path

if TYPE_CHECKING:
    from zoo.training.state.shard_stager import ShardStager

LOG = logging.getLogger("zoo")


class CheckpointWriter:
    """Writes the checkpoints of a run in a thread, one after the other.

    A save copies the tensors in the training thread, and returns. The copies are written, hashed,
    flushed and renamed by a thread, as ``save_checkpoint`` does it, and older checkpoints are
    removed only then. A save waits for the one before it, so that a process that is killed loses at
    most one.

    The tensors of FSDP are copied and written by ``torch.distributed.checkpoint.async_save``, in
    all processes. All others are written as safetensors by the main process: with one process,
    torch's function takes several times as long for the same file.
    """

    def __init__(self, run: Path, dist: DistContext) -> None:
        self._run = run
        self._dist = dist
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="zoo-checkpoint")
        self._write: Future[Any] | None = None  # The write in progress, or that has just ended.
        self._step = 0  # Its step.
        # The copies are kept for the next save: new memory takes longer to write to.
        self._copies: dict[str, Tensors] = {}
        self._stager: ShardStager | None = None
        # The writing processes wait for each other by a process group of their own, since the
        # training threads use theirs at the same time.
        self._group: distributed.ProcessGroup | None = None

    def save(
        self,
        meta: CheckpointMeta,
        groups: Mapping[str, Tensors],
        log: JsonlLogger | None,
        *,
        keep: int,
        in_background: bool,
    ) -> None:
        """Save a checkpoint, once the one before it is written; all processes must call it.

        Args:
            meta: contents of ``state.json``; this call adds the digests.
            groups: file stem -> tensors by name, which may change as soon as this returns.
            log: the log whose length and digest ``meta`` has; ``None`` in all but the main process.
            keep: number of last checkpoints that are kept, see ``prune_checkpoints``.
            in_background: whether to return before the checkpoint is written.

        Raises:
            UsageError: this checkpoint, or the one before it, could not be written.
        """
        self.wait()
        if in_background:
            self._begin(meta, groups, log, keep)
            return
        if log is not None:
            log.flush()
        save_checkpoint(self._run, meta, groups, self._dist)
        self._prune(meta, keep)
        self._publish(meta)

    def wait(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            UsageError: it could not be written.
        """
        write = self._write
        self._write = None
        if write is not None:
            with map_os_errors(self._run, DISK_FULL_HINT), library_errors():
                write.result()

    def has_failed(self) -> bool:
        """Return whether the last checkpoint could not be written, which ``wait`` raises."""
        write = self._write
        return write is not None and write.done() and write.exception() is not None

    def close(self) -> None:
        """Wait for a checkpoint that is being written; warn if it fails, and end the thread.

        It is called when a process ends, possibly by an error, which a second one must not hide.
        """
        try:
            self.wait()
        except (UsageError, OSError, RuntimeError) as error:
            LOG.warning("warning: the checkpoint of step %s was not saved: %s", self._step, error)
        self._executor.shutdown()
        if self._stager is not None:
            self._stager.close()

    def _begin(
        self,
        meta: CheckpointMeta,
        groups: Mapping[str, Tensors],
        log: JsonlLogger | None,
        keep: int,
    ) -> None:
        """Copy the tensors, and begin to write them."""
        sharded_groups = {stem: tensors for stem, tensors in groups.items() if is_sharded(tensors)}
        self._step = meta.step
        with contextlib.ExitStack() as stack:
            folder = Path()
            if self._dist.is_main_process:
                target = checkpoint_path(self._run, meta.step)
                folder = stack.enter_context(atomic_directory(target, force=True, managed=True))
            shards = None
            if sharded_groups:
                folder = Path(self._dist.broadcast(str(folder)))
                shards = self._begin_shards(folder, sharded_groups)
            self._write = shards
            if self._dist.is_main_process:
                copies: dict[str, Tensors] = {}
                for stem, tensors in groups.items():
                    if stem not in sharded_groups:
                        copies[stem] = self._copy(stem, tensors)
                if self._dist.device.type == "cuda":
                    torch.cuda.synchronize(self._dist.device)
                open_folder = stack.pop_all()  # The thread closes it, which renames it.
                self._write = self._executor.submit(
                    self._finish, open_folder, folder, meta, copies, shards, log, keep
                )

    def _begin_shards(self, folder: Path, groups: Mapping[str, Tensors]) -> "Future[Any]":
        """Copy this process's part of sharded tensors, and begin to write it."""
        # The library is imported on first use: it takes seconds.
        from torch.distributed.checkpoint.state_dict_saver import async_save

        from zoo.training.state.shard_stager import ShardStager

        if self._stager is None:
            self._stager = ShardStager(on_gpu=self._dist.device.type == "cuda")
            timeout = timedelta(seconds=self._dist.timeout)
            # A new group waits for the addresses of all processes, also of one that ends in the
            # seconds of the import. The barrier notices its end at once.
            self._dist.barrier()
            self._group = distributed.new_group(backend="gloo", timeout=timeout)
        write = async_save(
            flat_shards(groups),
            storage_writer=shard_writer(folder, groups),
            process_group=self._group,
            async_stager=self._stager,
        )
        assert isinstance(write, Future), "the tensors are copied before the call returns"
        return write

    def _copy(self, stem: str, tensors: Tensors) -> Tensors:
        """Return copies of tensors on the CPU, in memory that is used again."""
        earlier_copies = self._copies.get(stem, {})
        copies: Tensors = {}
        for name, tensor in tensors.items():
            copy = earlier_copies.get(name)
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            copies[name] = copy.copy_(tensor, non_blocking=tensor.is_cuda)
        self._copies[stem] = copies
        return copies

    def _finish(
        self,
        open_folder: contextlib.ExitStack,
        folder: Path,
        meta: CheckpointMeta,
        copies: Mapping[str, Tensors],
        shards: "Future[Any] | None",
        log: JsonlLogger | None,
        keep: int,
    ) -> None:
        """Write a checkpoint to its end, in the thread of the main process."""
        with open_folder:
            if shards is not None:
                with library_errors():
                    shards.result()
            write_main_files(folder, meta, copies)
            if log is not None:
                log.flush()
        self._prune(meta, keep)
        self._publish(meta)

    def _publish(self, meta: CheckpointMeta) -> None:
        """Upload a checkpoint of a run whose directory is a URL."""
        if not self._dist.is_main_process:
            return
        try:
            publish_changes(self._run)
        except ZooError as error:  # Training is not worth less than an upload that comes later.
            LOG.warning(
                "warning: the checkpoint of step %s was not uploaded, which the next upload does: "
                "%s",
                meta.step,
                error,
            )

    def _prune(self, meta: CheckpointMeta, keep: int) -> None:
        if self._dist.is_main_process:
            best_step = None
            if meta.best is not None:
                _, best_step = meta.best
            prune_checkpoints(self._run, keep=keep, best=best_step)
