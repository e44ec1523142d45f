"""The processes of a run on streams, in one process."""

from collections.abc import Mapping

import torch
from blake3 import blake3
from torch import Tensor

from zoo.training.distributed.context import DistContext
from zoo.training.setup import PretrainSetup, train_dataloader
from zoo.training.streaming.loader import StreamLoader, merge_tables


class Processes:
    """The loaders of several processes of a run, in this process."""

    def __init__(
        self,
        setup: PretrainSetup,
        count: int,
        step: int = 0,
        tables: Mapping[str, Tensor] | None = None,
    ) -> None:
        cpu = torch.device("cpu")
        self.loaders: list[StreamLoader] = []
        self.rows_by_source: dict[str, int] = {}  # Source -> rows of the last step.
        for rank in range(count):
            loader = train_dataloader(setup, DistContext(rank, count, cpu))
            assert isinstance(loader, StreamLoader)
            if tables is not None:
                loader.load_state_dict(step, tables)
            self.loaders.append(loader)

    def step_digest(self, step: int) -> str:
        """Return the digest of the token ids of a step, in the order of its rows."""
        digest = blake3()
        self.rows_by_source = {}
        for loader in self.loaders:
            for batch in loader.make_batches(step):
                for name, part in batch.sources.items():
                    self.rows_by_source[name] = self.rows_by_source.get(name, 0) + part.rows
                digest.update(batch.tensors["input_ids"].numpy().tobytes())
        return digest.hexdigest()

    def tables(self, step: int) -> dict[str, Tensor]:
        """Return the tables of lanes that a checkpoint of a step has."""
        merged_tables = {}
        for name, loaded in self.loaders[0]._loaded.items():
            tables = [loader._states[step][name] for loader in self.loaders]
            merged_tables[name] = merge_tables(loaded, torch.stack(tables))
        return merged_tables

    def lanes_read(self, name: str = "lanes") -> list[int]:
        """Return the number of lanes of a stream that each process has read."""
        counts = []
        for loader in self.loaders:
            lanes = loader.streams[name].lanes
            counts.append(sum(lane._packed is not None for lane in lanes))
        return counts

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()
