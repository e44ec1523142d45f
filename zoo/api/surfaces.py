"""``zoo.loss_surface``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.api.arguments import AnyPath, AnyPaths, as_path, checked
from zoo.data.readers.text_io import split_name
from zoo.errors import UsageError
from zoo.io.paths import as_paths
from zoo.io.urls import is_remote

if TYPE_CHECKING:
    from zoo.finetuning.loss_surface import LossCurve, LossPlane

CURVE_INTERVALS = 10
PLANE_INTERVALS = 5
MARGIN = 0.5
NUMBERS = ".json"


@dataclass(frozen=True)
class LossSurface:
    """Result of ``zoo.loss_surface``, which a notebook shows as a figure.

    Attributes:
        curves: loss between initial and final weights, of each run; empty with a plane.
        plane: loss on the plane of two runs; ``None`` without a second one.
    """

    curves: "tuple[LossCurve, ...]" = ()
    plane: "LossPlane | None" = None

    def to_json(self) -> dict[str, Any]:
        """Return all numbers, as ``zoo loss-surface --json`` prints them."""
        if self.plane is not None:
            return {"plane": self.plane.to_json()}
        return {"curves": [curve.to_json() for curve in self.curves]}

    def to_svg(self) -> str:
        """Return the figure."""
        from zoo.report.surface import Place, curve_figure, plane_figure

        plane = self.plane
        if plane is None:
            curves = {}
            for curve in self.curves:
                points = zip(curve.positions.tolist(), curve.losses.tolist(), strict=True)
                curves[curve.run] = list(points)
            return curve_figure(curves)
        first, second = (Path(run).name for run in plane.runs)
        if first == second:  # Such as ``seed-0`` of two directories.
            first, second = ("/".join(Path(run).parts[-2:]) for run in plane.runs)
        return plane_figure(
            plane.first,
            plane.second,
            plane.losses,
            units=(f"towards {plane.runs[0]}", f"towards {plane.runs[1]}"),
            places=[Place("initial", 0, 0), Place(first, 1, 0), Place(second, 0, 1)],
            path=[(point.first, point.second) for point in plane.path],
        )

    def to_html(self) -> str:
        """Return a page with the figure and the losses of the models."""
        from zoo.report import html
        from zoo.report.html import image_url

        return html.render(
            "surface.html",
            title="Loss between initial and final weights",
            url=image_url(self.to_svg()),
            header=("weights", "loss"),
            rows=[(name, f"{loss:.4f}") for name, loss in self.model_losses().items()],
        )

    def model_losses(self) -> dict[str, float]:
        """Return the losses of the initial and the final weights, by name."""
        plane = self.plane
        losses = {}
        if plane is not None:
            first = plane.first.tolist()
            second = plane.second.tolist()
            origin = (second.index(0), first.index(0))
            losses[f"initial weights of {plane.runs[0]}"] = float(plane.losses[origin])
            losses[f"final weights of {plane.runs[0]}"] = float(
                plane.losses[origin[0], first.index(1)]
            )
            losses[f"final weights of {plane.runs[1]}"] = float(
                plane.losses[second.index(1), origin[1]]
            )
        for curve in self.curves:
            positions = curve.positions.tolist()
            for name, position in (("initial", 0), ("final", 1)):
                loss = float(curve.losses[positions.index(position)])
                losses[f"{name} weights of {curve.run}"] = loss
        return losses

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks."""
        from zoo.report.cells import page_cell

        return page_cell("loss surface", self.to_html())


@checked
def loss_surface(
    run: AnyPath,
    other: AnyPath | None = None,
    *,
    eval: AnyPaths = (),
    train: AnyPaths = (),
    intervals: int | None = None,
    margin: float = MARGIN,
    output: AnyPath | None = None,
    force: bool = False,
    device: str | None = None,
    threads: int | None = None,
    offline: bool = False,
) -> LossSurface:
    """Return losses between initial and final weights of runs, as ``zoo loss-surface`` does.

    This follows Hao et al. 2019 (arXiv:1908.05620, section 3). Initial weights are made again from
    the pretrained checkpoint and the seed. The loss is the task's, in float32, over the evaluation
    data of ``run``.

    Args:
        run: directory of a run of ``zoo.finetune``; of a comparison with ``from_scratch``, both
            models have a curve.
        other: directory of another run of the same model: the losses are on the plane through the
            initial weights of ``run`` and the final weights of both. By default, they are on the
            line from the initial to the final weights.
        eval: files to evaluate on; by default those of the run.
        train: where the training data of the run is, if it has moved; classes and their weights
            follow from it.
        intervals: number of intervals between initial and final weights; by default 10, and 5 on a
            plane.
        margin: part of the distance that is shown before the initial and after the final weights.
        output: file to write: a picture (``.svg``, ``.png``), a page (``.html``) or numbers
            (``.json``); by default none.
        force: replace the file.
        device: device, such as ``cpu``; by default CUDA if available.
        threads: number of CPU threads.
        offline: open no connection.

    Returns:
        the losses, with the checkpoints of the run projected on the line or plane.

    Raises:
        UsageError: a run is not a fine-tuning run, has not ended, or has an adapter;
            the models differ; or a number is out of range.
        SourceError: a run, its data or its pretrained model is missing.
        VerificationError: files are damaged or changed.

    Example:
        >>> surface = zoo.loss_surface("runs/both")  # doctest: +SKIP
        >>> surface.curves[0].losses.shape  # doctest: +SKIP
        (21,)
    """
    import torch

    path = as_path(output, "output")
    _check_output(path, force=force)
    first_path = as_path(run, "file")
    other_path = as_path(other, "file")
    assert first_path is not None, "run is not None"
    eval_paths = _absolute_paths(eval)
    train_paths = _absolute_paths(train)
    initial_threads = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        options: dict[str, Any] = {
            "eval_paths": eval_paths,
            "train_paths": train_paths,
            "device": device,
            "offline": offline,
        }
        surface = _compute(first_path, other_path, intervals, margin, options)
    finally:
        torch.set_num_threads(initial_threads)
    if path is not None:
        _write(surface, path)
    return surface


def _absolute_paths(paths: AnyPaths) -> list[str]:
    """Return files by absolute paths; the runs may have begun in other directories."""
    names = []
    for path in as_paths(paths):
        name, file = split_name(path)
        if not is_remote(file):
            file = str(Path(file).expanduser().absolute())
        names.append(f"{name}={file}" if name else file)
    return names


def _compute(
    run: Path,
    other: Path | None,
    intervals: int | None,
    margin: float,
    options: Mapping[str, Any],
) -> LossSurface:
    from zoo.finetuning.loss_surface import Grid, RunLosses, loss_curve, loss_plane, runs_of

    runs = runs_of(run)
    if other is None:
        grid = Grid(CURVE_INTERVALS if intervals is None else intervals, margin)
        return LossSurface(tuple(loss_curve(RunLosses(each, **options), grid) for each in runs))
    other_runs = runs_of(other)
    for path, path_runs in ((run, runs), (other, other_runs)):
        if len(path_runs) > 1:
            raise UsageError(f"{path} has two runs", f"name one, such as {path_runs[0]}")
    grid = Grid(PLANE_INTERVALS if intervals is None else intervals, margin)
    return LossSurface(plane=loss_plane(RunLosses(run, **options), other_runs[0], grid))


def _check_output(path: Path | None, *, force: bool) -> None:
    """Check the name of the file before anything is computed."""
    from zoo.io.output.overwrite import check_file
    from zoo.report.files import check_report_file

    if path is None:
        return
    check_report_file(path, "a loss surface", (NUMBERS,))
    check_file(path, force=force)


def _write(surface: LossSurface, path: Path) -> None:
    from zoo.io.json import encode_json
    from zoo.io.output.atomic import atomic_write
    from zoo.io.output.full_disks import writing
    from zoo.report.files import write_report_file

    if path.suffix.lower() != NUMBERS:
        write_report_file(path, surface.to_html, surface.to_svg)
        return
    with writing(path):
        atomic_write(path, encode_json(surface.to_json()))
