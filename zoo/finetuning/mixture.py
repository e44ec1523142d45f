"""Several tables with shares: the source of each row, and the order of a mixture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from zoo.data.readers.documents import expand_paths
from zoo.data.readers.text_io import split_name
from zoo.data.shares import cycle_counts, require_weights, shares_by_temperature
from zoo.errors import UsageError
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.order import EpochShuffle, ProportionalMixture, WeightedMixture
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import TaskData, TaskSplit
from zoo.io.paths import readable_name
from zoo.training.config.finetune import TableConfig
from zoo.training.mixed_dataset import TableSources

WEIGHTS = "data.weights"
REST = "other data"  # Source of evaluation data that has no name.


@dataclass(frozen=True)
class TableMixture:
    """The sources of the rows of a run.

    Attributes:
        train: sources of the training rows.
        evaluation: sources of the evaluation rows.
        counts: source -> number of its rows in a cycle.
    """

    train: TableSources
    evaluation: TableSources
    counts: Mapping[str, int]

    @property
    def shares(self) -> dict[str, float]:
        """Share of the rows of each source."""
        total = sum(self.counts.values())
        return {name: count / total for name, count in self.counts.items()}


def source_paths(reader: TaskData[Any], paths: Sequence[str]) -> tuple[str, ...]:
    """Return paths as a task reads them: without names, unless the task has a use for them."""
    if reader.reads_names:
        return tuple(paths)
    return tuple(split_name(path)[1] for path in paths)


def table_mixture(
    reader: TaskData[Any],
    table: TableConfig,
    splits: tuple[TaskSplit[Any], TaskSplit[Any]],
) -> TableMixture | None:
    """Return the mixture of a run; ``None`` without weights and without a temperature.

    Raises:
        UsageError: weights and names do not go together, or a source has no rows.
    """
    if not table.has_shares:
        return None
    names = _source_names(table)
    sources_by_file = {**_sources_by_file(table.train), **_sources_by_file(table.eval)}
    train_split, eval_split = splits
    train = _row_sources(names, sources_by_file, train_split)
    evaluation = _row_sources((*names, REST), sources_by_file, eval_split)
    sizes = {}
    for number, name in enumerate(names):
        sizes[name] = int((train.numbers == number).sum())
        if not sizes[name]:
            raise UsageError(f"the source {name} has no rows to train on", "give more rows")
    shares = table.weights
    if not shares:
        assert table.temperature is not msgspec.UNSET, "one of them decides the shares"
        shares = shares_by_temperature(sizes, table.temperature, table.mixing_limit)
    return TableMixture(train, evaluation, cycle_counts(shares, WEIGHTS))


def _source_names(table: TableConfig) -> tuple[str, ...]:
    """Return the names of the sources; all have one, and all have a weight if some do."""
    names = tuple(dict.fromkeys(split_name(path)[0] for path in table.train))
    for path in table.train:
        if not split_name(path)[0]:
            setting = "there are weights" if table.weights else "a temperature mixes sources"
            raise UsageError(f"{path} has no name, and {setting}", f"--train NAME={path}")
    if table.weights:
        require_weights(table.weights, names, WEIGHTS)
    return names


def _sources_by_file(paths: Iterable[str]) -> dict[str, str]:
    """Return file -> name of its source."""
    sources = {}
    for path in paths:
        name, file = split_name(path)
        for expanded_path in expand_paths([file]):
            sources[readable_name(expanded_path)] = name
    return sources


def _row_sources(
    names: Sequence[str], sources_by_file: Mapping[str, str], split: TaskSplit[Any]
) -> TableSources:
    """Return the sources of the rows of a split, by the files of its samples."""
    if len(split.rows) != len(split.samples):
        raise UsageError(
            "a long text has several rows, which have no weights", "leave --weight out"
        )
    # A location begins with the file; the name of a file may begin with that of another one.
    longest_first = sorted(sources_by_file, key=len, reverse=True)
    numbers = []
    for sample in split.samples:
        file = next((file for file in longest_first if sample.location.startswith(file)), "")
        source = sources_by_file.get(file, "")
        if source not in names:
            source = REST
        if source not in names:
            raise UsageError(f"{sample.location} belongs to no source", f"--train NAME={file}")
        numbers.append(names.index(source))
    return TableSources(names, np.array(numbers, dtype=np.int64))


def train_order(
    objective: FineTuning, rows: TokenizedRows, mixture: TableMixture | None
) -> EpochShuffle:
    """Return the order of the training rows: the task's, or that of a mixture.

    Raises:
        UsageError: the task has an order of its own, such as one that keeps equal texts apart.
    """
    order = objective.train_order(rows)
    if mixture is None:
        return order
    if type(order) not in (EpochShuffle, ProportionalMixture):
        raise UsageError(
            "the loss decides which rows come together, which weights cannot", "leave --weight out"
        )
    sources = {}
    for number, name in enumerate(mixture.train.names):
        sources[name] = np.flatnonzero(mixture.train.numbers == number)
    return WeightedMixture(sources, mixture.counts, objective.context.settings.seed)
