"""The loss between the initial and the final weights of fine-tuning runs.

Hao et al. 2019 (arXiv:1908.05620, section 3): with the initial weights t0 and the final weights t1
of a run, the curve is f(a) = J(t0 + a (t1 - t0)). With the final weights t2 of another run, the
plane is f(a, b) = J(t0 + a (t1 - t0) + b (t2 - t0)). J is the loss of the first run's task.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from zoo.checkpoint import MANIFEST, load_checkpoint
from zoo.data.readers.text_io import split_name
from zoo.errors import SourceError, UsageError
from zoo.finetuning.from_scratch import ARMS
from zoo.finetuning.runs import MODEL
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.io.digests.self_digest import read_record
from zoo.io.digests.verified import require_blake3
from zoo.io.progress import progress
from zoo.io.urls import is_remote
from zoo.training.build import build_model
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import validate_config
from zoo.training.distributed.context import DistContext
from zoo.training.logging.aggregate import MetricSums, mean_over_sources
from zoo.training.loss_module import LossModule
from zoo.training.state.checkpoints import REMOVE_HINT, STATE, CheckpointMeta
from zoo.training.state.earlier_versions import read_run_settings
from zoo.training.state.location import initial_directory
from zoo.training.state.pretrained import PretrainedInit
from zoo.training.state.progress import (
    is_comparison,
    is_seed_directory,
    list_checkpoints,
    seed_directories,
)
from zoo.training.state.run_manifest import SETTINGS, RunManifest, read_manifest
from zoo.training.state.state_dict import unique_state_dict

LOG = logging.getLogger("zoo")
WEIGHTS = "weights.safetensors"  # The file of a checkpoint without shards.
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PathPoint:
    """Where the weights of a checkpoint are, projected on the curve or the plane."""

    step: int
    first: float  # Coordinate towards the final weights of the run.
    second: float = 0.0  # Coordinate towards those of the other run.


@dataclass(frozen=True)
class LossCurve:
    """The loss on the line from the initial (0) to the final weights (1) of a run."""

    run: str
    positions: Floats  # (points,)
    losses: Floats  # (points,)
    path: Sequence[PathPoint] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as values that JSON can represent."""
        return {
            "run": self.run,
            "positions": self.positions.tolist(),
            "losses": self.losses.tolist(),
            "path": [{"step": point.step, "position": point.first} for point in self.path],
        }


@dataclass(frozen=True)
class LossPlane:
    """The loss on the plane through the initial weights of a run and two final ones."""

    runs: tuple[str, str]
    # Coordinates towards the final weights of the first run, (columns,), and the second, (rows,).
    first: Floats
    second: Floats
    losses: Floats  # (rows, columns)
    path: Sequence[PathPoint] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as values that JSON can represent."""
        return {
            "runs": list(self.runs),
            "first": self.first.tolist(),
            "second": self.second.tolist(),
            "losses": self.losses.tolist(),
            "path": [
                {"step": point.step, "first": point.first, "second": point.second}
                for point in self.path
            ],
        }


@dataclass(frozen=True)
class Grid:
    """Coordinates at which losses are computed; they include 0 and 1."""

    steps: int  # Number of intervals between 0 and 1.
    margin: float  # Part that is computed before 0 and after 1.

    def coordinates(self) -> Floats:
        """Return the coordinates in ascending order, (points,)."""
        outside = round(self.margin * self.steps)
        return np.arange(-outside, self.steps + outside + 1) / self.steps


def runs_of(path: Path) -> list[Path]:
    """Return the run of a directory; of a comparison the two runs, of the first seed.

    Raises:
        SourceError: there is no run.
        UsageError: there are several.
    """
    if is_comparison(path):
        runs = []
        for name in ARMS:
            folder = path / name
            runs.append(seed_directories(folder)[0] if is_seed_directory(folder) else folder)
        return runs
    if is_seed_directory(path):
        raise UsageError(
            f"{path} has runs of several seeds", f"name one, as {seed_directories(path)[0]}"
        )
    if not (path / SETTINGS).is_file():
        raise SourceError(f"{path} is not a run: it has no {SETTINGS}", "give a run's directory")
    return [path]


class StoredWeights:
    """Tensors in safetensors files, of which one at a time is read; digests are checked first.

    Args:
        digests: file -> its BLAKE3 digest.
        manifest: file that lists the digests.
    """

    def __init__(self, digests: Mapping[Path, str], manifest: Path) -> None:
        self._files: dict[str, Any] = {}
        for path, digest in digests.items():
            require_blake3(path, digest, manifest)
            file = safe_open(path, framework="pt")
            names: list[str] = file.keys()  # type: ignore[no-untyped-call]
            self._files.update(dict.fromkeys(names, file))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor; ``None`` if there is none of that name."""
        if name not in self._files:
            return None
        return tuple(self._files[name].get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        """Return a tensor, on the CPU."""
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor


class RunLosses:
    """The loss of a fine-tuning run's task for any weights on its curve or plane.

    The weights that move are the floating-point tensors of the model, each once where several
    parameters are tied. Of the final weights, only one tensor at a time is in memory.

    Args:
        run: directory of the run.
        eval_paths: files to evaluate on; by default those of the run.
        train_paths: where the files that the run was trained on are; by default where they were.
        device: the device.
        offline: open no connection.

    Raises:
        UsageError: the run has no final model, an adapter, or began with another run's weights.
        SourceError: a file or the pretrained model is missing.
        VerificationError: the pretrained model or a file is another one now.
    """

    def __init__(
        self,
        run: Path,
        *,
        eval_paths: Sequence[str] = (),
        train_paths: Sequence[str] = (),
        device: str | None,
        offline: bool,
    ) -> None:
        self.run = run
        self.dist = DistContext.initialize(device)
        record = read_manifest(run)
        config = _with_files(_read_config(run, record), train_paths, eval_paths)
        with initial_directory(run, record.working_directory) as initial_run:
            setup = _open_setup(
                initial_run, record, config, has_other_data=bool(eval_paths), offline=offline
            )
            self.setup = setup
            module = build_model(setup).module
            if setup.init is not None:
                setup.load_pretrained(module)
            setup.prepare_model(module)
        self.network = setup.objective.models_to_save(module)["model"]
        self._require_complete(module)
        self._module = LossModule(setup.objective, module.to(self.dist.device)).eval()
        self.weights: dict[str, Tensor] = {}
        for name, tensor in unique_state_dict(self.network.module).items():
            if tensor.is_floating_point():
                self.weights[name] = tensor
        self.initial = {name: tensor.cpu().clone() for name, tensor in self.weights.items()}
        self._batches = setup.eval_batches(self.dist)

    def _require_complete(self, module: torch.nn.Module) -> None:
        """Check that the final model has all that was trained."""
        saved_ids = {id(parameter) for parameter in self.network.module.parameters()}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and id(parameter) not in saved_ids:
                raise UsageError(
                    f"{self.run} trained {name} next to its model, which does not have it",
                    "choose a run whose model has all trained weights",
                )

    @torch.no_grad()
    def loss(self, finals: Sequence[StoredWeights], coordinates: Sequence[float]) -> float:
        """Return the loss of the initial weights, moved towards final weights.

        Args:
            finals: readers of final weights.
            coordinates: how far to move towards each of them; 1 gives exactly these weights.
        """
        initial_share = 1 - sum(coordinates)
        for name, target in self.weights.items():
            moved = self.initial[name] * initial_share
            for reader, coordinate in zip(finals, coordinates, strict=True):
                if coordinate != 0:
                    moved += coordinate * reader.read(name).to(moved.dtype)
            target.copy_(moved)
        return self.evaluate()

    @torch.no_grad()
    def evaluate(self) -> float:
        """Return the mean loss of the model as it is over the evaluation data, in float32."""
        objective = self.setup.objective
        sums_by_source: dict[str, MetricSums] = {}
        for batch in self._batches:
            tensors = {name: value.to(self.dist.device) for name, value in batch.tensors.items()}
            output = self._module(tensors)
            sums_by_source.setdefault(batch.source, MetricSums()).add(output, batch.counts)
        shares = self.setup.source_shares()
        if shares:
            records = {}
            for source, sums in sums_by_source.items():
                records[source] = sums.compute(objective.loss_weights)
            return float(mean_over_sources(records, shares)["loss"])
        pooled = MetricSums()
        for sums in sums_by_source.values():
            pooled.merge(sums)
        return float(pooled.compute(objective.loss_weights)["loss"])

    def open_final(self, run: Path) -> StoredWeights:
        """Return the final weights of this run, or of another one with the same model.

        Raises:
            UsageError: the run has not ended, or its model has other weights.
        """
        if not (run / MODEL).is_dir():
            raise UsageError(f"{run} has no final model yet", f"`zoo finetune --resume {run}`")
        checkpoint = load_checkpoint(run / MODEL)
        digests = {}
        for path in checkpoint.weight_files():
            digests[path] = checkpoint.manifest.files[path.name].blake3
        weights = StoredWeights(digests, checkpoint.path / MANIFEST)
        for name, tensor in self.weights.items():
            if weights.shape(name) != tuple(tensor.shape):
                raise UsageError(
                    f"{run} and {self.run} have different models: {name} is missing or of another "
                    "shape",
                    "compare runs of one model with equally many labels",
                )
        return weights

    def trajectory(self, finals: Sequence[StoredWeights]) -> list[PathPoint]:
        """Return the checkpoints of the run, projected on its curve or plane by least squares."""
        points = [PathPoint(0, 0.0)]
        gram = self._products(finals, finals)
        prefix = _prefix_of(self.network.module, self._module.model)
        for step, folder in list_checkpoints(self.run).items():
            meta = read_record(folder / STATE, CheckpointMeta, hint=REMOVE_HINT)
            if step == 0 or WEIGHTS not in meta.files:  # Shards are not read.
                continue
            digests = {folder / WEIGHTS: meta.files[WEIGHTS].blake3}
            checkpoint = StoredWeights(digests, folder / STATE)
            products = self._products(finals, [checkpoint], prefix)[:, 0]
            coordinates = np.linalg.lstsq(gram, products, rcond=None)[0].tolist()
            points.append(PathPoint(step, *coordinates))
        return points

    def _products(
        self, finals: Sequence[StoredWeights], others: Sequence[StoredWeights], prefix: str = ""
    ) -> Floats:
        """Return the inner products of distances from the initial weights, (finals, others).

        Args:
            finals: final weights.
            others: other weights.
            prefix: text before the names of ``others``.
        """
        products = np.zeros((len(finals), len(others)))
        for name, initial in self.initial.items():
            start = initial.double()
            distances = [weights.read(name).double() - start for weights in finals]
            for column, weights in enumerate(others):
                distance = weights.read(prefix + name).double() - start
                for row, final_distance in enumerate(distances):
                    products[row, column] += float((final_distance * distance).sum())
        return products


def _prefix_of(network: torch.nn.Module, module: torch.nn.Module) -> str:
    """Return the text before the names of a network in the state of the module around it."""
    for name, child in module.named_modules():
        if child is network:
            return f"{name}." if name else ""
    return ""


def loss_curve(losses: RunLosses, grid: Grid) -> LossCurve:
    """Return the loss on the line from the initial to the final weights of a run."""
    positions = grid.coordinates()
    final = losses.open_final(losses.run)
    values = []
    with progress("evaluating", len(positions), unit="points") as advance:
        for position in positions.tolist():
            values.append(losses.loss([final], [position]))
            advance(1)
    return LossCurve(str(losses.run), positions, np.array(values), losses.trajectory([final]))


def loss_plane(losses: RunLosses, other: Path, grid: Grid) -> LossPlane:
    """Return the loss on the plane through a run's initial weights and two runs' final weights."""
    coordinates = grid.coordinates()
    values = np.empty((len(coordinates), len(coordinates)))
    finals = [losses.open_final(run) for run in (losses.run, other)]
    with progress("evaluating", values.size, unit="points") as advance:
        for row, column in np.ndindex(values.shape):
            place = [float(coordinates[column]), float(coordinates[row])]
            values[row, column] = losses.loss(finals, place)
            advance(1)
    runs = (str(losses.run), str(other))
    return LossPlane(runs, coordinates, coordinates, values, losses.trajectory(finals))


def _read_config(run: Path, record: RunManifest) -> FineTuneConfig:
    if record.kind != "finetune":
        raise UsageError(f"{run} is a run of `zoo {record.kind}`", "give a run of `zoo finetune`")
    config = validate_config(read_run_settings(run), FineTuneConfig, str(run / SETTINGS))
    if config.adapter is not None:
        raise UsageError(
            f"{run} trained an adapter, which is not between initial and final weights of a model",
            "give a run without --adapter",
        )
    if record.parent is not None:
        raise UsageError(
            f"{run} continues {record.parent.path}, and did not begin with initial weights",
            "give the run that it continues",
        )
    return config


def _with_files(
    config: FineTuneConfig, train_paths: Sequence[str], eval_paths: Sequence[str]
) -> FineTuneConfig:
    """Return a configuration with other files, as far as any are given."""
    data = config.data
    if train_paths:
        data = msgspec.structs.replace(data, train=tuple(train_paths))
    if eval_paths:
        data = msgspec.structs.replace(data, eval=tuple(eval_paths))
    return msgspec.structs.replace(config, data=data)


def _open_setup(
    run: Path,
    record: RunManifest,
    config: FineTuneConfig,
    *,
    has_other_data: bool,
    offline: bool,
) -> FineTuneSetup:
    """Return the setup with which a run began, so that its initial weights can be made again."""
    for path in config.data.train:
        _, file = split_name(path)
        if not is_remote(file) and not Path(file).expanduser().exists():
            raise SourceError(
                f"{path}, which {run} was trained on, does not exist",
                "if it has moved, name it by --train",
            )
    setup = finetune_setup(config, offline=offline, check_contents=False, resumed=(run, record))
    if has_other_data:
        # The evaluation data differs from the run's on purpose.
        began_with = {**(record.data or {}), "eval": setup.data.get("eval", {})}
        record = msgspec.structs.replace(record, data=began_with)
    setup.require_same_data(run, record)
    _warn_of_other_torch(record)
    if record.init_from is None or config.init_from is None or config.random_weights:
        return setup
    init = PretrainedInit.reopen(record.init_from, config.init_from, setup.family, offline=offline)
    return replace(setup, init=init)


def _warn_of_other_torch(record: RunManifest) -> None:
    """Warn if this version of torch may draw different new weights than the run's."""
    version = record.environment.get("torch")
    if version not in (None, str(torch.__version__)):
        LOG.warning(
            "warning: the run began with torch %s, and new weights are drawn again by torch %s, "
            "which may draw different ones",
            version,
            torch.__version__,
        )
