"""Figures of losses between weights: curves on a line, and contours on a plane."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoo.io.page_text import html_text
from zoo.report.figures import STYLE, Band, draw_bands, figure_svg
from zoo.report.svg import Axis, Plot

Floats = NDArray[np.float64]
SIDE = 320  # Width and height of a plane.
LEFT = 60
TOP = 34
KEY_LEFT = LEFT + SIDE + 26  # Left edge of the key of shades.
KEY_WIDTH = 16
LEVELS = 9  # Contours.
LOGARITHMIC = 4  # Ratio of the largest loss to the smallest from which shades are logarithmic.
PLANE_STYLE = f"""{STYLE}
.heat {{ fill: #3460a0 }} .contour {{ fill: none; stroke: #1f2328; stroke-width: 0.7 }}
.path {{ fill: none; stroke: #b3431e; stroke-width: 1.6 }} .place {{ fill: #b3431e }}
.frame {{ fill: none; stroke: #8b9199 }}
@media (prefers-color-scheme: dark) {{
  .heat {{ fill: #7aaaf0 }} .contour {{ stroke: #f0f6fc }} .path {{ stroke: #ff9b70 }}
  .place {{ fill: #ff9b70 }}
}}
"""


@dataclass(frozen=True)
class Place:
    """A named point of a plane."""

    name: str
    x: float
    y: float


def curve_figure(curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a figure of losses by the position between initial (0) and final weights (1).

    Args:
        curves: name -> position and loss of each point.
    """
    bands: dict[str, Band] = {}
    for name, points in curves.items():
        bands[name] = [(x, loss, loss, loss) for x, loss in points]
    return draw_bands(
        {"loss (nats)": bands}, x="position", marks=[(0, "initial"), (1, "final weights")]
    )


def plane_figure(
    x: Floats,
    y: Floats,
    losses: Floats,
    *,
    units: tuple[str, str],
    places: Sequence[Place],
    path: Sequence[tuple[float, float]],
) -> str:
    """Return a figure of losses on a plane: shades, contours, named points and a path.

    Args:
        x: coordinates of the columns, ascending, (columns,).
        y: coordinates of the rows, ascending, (rows,).
        losses: the losses, (rows, columns).
        units: names of the axes.
        places: points with names.
        path: points that a line joins.
    """
    scale = ShadeScale(losses)
    plot = _plane_plot(x, y)
    elements = list(_cells(x, y, losses, plot, scale))
    elements += _contours(x, y, losses, plot, scale.levels())
    elements.append(f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" class="frame"/>')
    elements += _axes(plot, units)
    elements += _path(path, plot)
    elements += _places(places, plot)
    elements += _key(scale)
    width = KEY_LEFT + KEY_WIDTH + 76
    return figure_svg(width, TOP + SIDE + 48, "loss on a plane of weights", elements, PLANE_STYLE)


def _plane_plot(x: Floats, y: Floats) -> Plot:
    """Return a square plot whose axes begin and end with the outermost coordinates."""
    x_axis = Axis.around(float(x[0]), float(x[-1]), 5, tight=True)
    y_axis = Axis.around(float(y[0]), float(y[-1]), 5, tight=True)
    x_axis = Axis(float(x[0]), x_axis.high, x_axis.step)
    y_axis = Axis(float(y[0]), y_axis.high, y_axis.step)
    return Plot(x_axis, y_axis, LEFT, LEFT + SIDE, TOP, TOP + SIDE)


def _path(path: Sequence[tuple[float, float]], plot: Plot) -> Iterator[str]:
    """Yield the line that joins points, if there are several."""
    if len(path) > 1:
        line = " ".join("{:.1f},{:.1f}".format(*plot.place(point)) for point in path)
        yield f'<polyline class="path" points="{line}" style="stroke-width:1.6"/>'


def _places(places: Sequence[Place], plot: Plot) -> Iterator[str]:
    """Yield the marks and names of points."""
    for place in places:
        across, down = plot.place((place.x, place.y))
        yield (
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" class="place"/>'
            f'<text x="{across + 7:.1f}" y="{down - 6:.1f}" class="name">'
            f"{html_text(place.name)}</text>"
        )


class ShadeScale:
    """Shades of losses, from 0 to 1; logarithmic if the losses span a large ratio."""

    def __init__(self, losses: Floats) -> None:
        finite = losses[np.isfinite(losses)]
        self.low = float(finite.min()) if finite.size else 0.0
        self.high = float(finite.max()) if finite.size else 1.0
        self.is_logarithmic = self.low > 0 and self.high / self.low > LOGARITHMIC

    def shade(self, loss: float) -> float:
        """Return the shade of a loss; the darkest for one that is not finite."""
        if not math.isfinite(loss):
            return 1.0
        if self.high == self.low:
            return 0.5
        if self.is_logarithmic:
            return math.log(loss / self.low) / math.log(self.high / self.low)
        return (loss - self.low) / (self.high - self.low)

    def levels(self) -> list[float]:
        """Return the losses of the contours, at equal distances of shades."""
        parts = [(number + 1) / (LEVELS + 1) for number in range(LEVELS)]
        if self.high == self.low:
            return []
        if self.is_logarithmic:
            return [self.low * (self.high / self.low) ** part for part in parts]
        return [self.low + part * (self.high - self.low) for part in parts]


def _edges(coordinates: Floats) -> Floats:
    """Return the edges of cells around coordinates, which end with the outermost ones."""
    middles = (coordinates[1:] + coordinates[:-1]) / 2
    return np.concatenate([coordinates[:1], middles, coordinates[-1:]])


def _cells(x: Floats, y: Floats, losses: Floats, plot: Plot, scale: ShadeScale) -> Iterator[str]:
    x_edges = _edges(x)
    y_edges = _edges(y)
    for (row, column), loss in np.ndenumerate(losses):
        left, bottom = plot.place((float(x_edges[column]), float(y_edges[row])))
        right, top = plot.place((float(x_edges[column + 1]), float(y_edges[row + 1])))
        title = f"{x[column]:.3g}, {y[row]:.3g}: {loss:.4g}"
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{bottom - top:.1f}" fill-opacity="{scale.shade(float(loss)):.3f}" '
            f'class="heat"><title>{title}</title></rect>'
        )


def _contours(
    x: Floats, y: Floats, losses: Floats, plot: Plot, levels: Sequence[float]
) -> Iterator[str]:
    """Yield the contours of some levels, without those that no loss crosses."""
    for level in levels:
        segments = "".join(
            f"M{start[0]:.1f} {start[1]:.1f}L{end[0]:.1f} {end[1]:.1f}"
            for start, end in _contour(x, y, losses, level, plot)
        )
        if segments:
            yield f'<path class="contour" d="{segments}"/>'


def _contour(
    x: Floats, y: Floats, losses: Floats, level: float, plot: Plot
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yield the segments of a contour: in each triangle of a cell, its crossing of the level."""
    for row in range(len(y) - 1):
        for column in range(len(x) - 1):
            corners = [(row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column)]
            points = [
                (float(x[at]), float(y[down]), float(losses[down, at])) for down, at in corners
            ]
            for triangle in (points[:3], [points[0], *points[2:]]):
                crossings = list(_crossings(triangle, level))
                if len(crossings) == 2:
                    yield plot.place(crossings[0]), plot.place(crossings[1])


def _crossings(
    triangle: Sequence[tuple[float, float, float]], level: float
) -> Iterator[tuple[float, float]]:
    """Yield the points of a triangle's edges where the loss, linear on each, is at a level."""
    for start, end in zip(triangle, [*triangle[1:], triangle[0]], strict=True):
        if not (math.isfinite(start[2]) and math.isfinite(end[2])):
            continue
        if (start[2] < level) != (end[2] < level):
            part = (level - start[2]) / (end[2] - start[2])
            yield start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])


def _axes(plot: Plot, units: tuple[str, str]) -> Iterator[str]:
    x_ticks = [value for value in plot.x.ticks() if plot.x.low - 1e-9 <= value]
    y_ticks = [value for value in plot.y.ticks() if plot.y.low - 1e-9 <= value]
    for value in x_ticks:
        across, _ = plot.place((value, plot.y.low))
        yield (
            f'<path class="axis" d="M{across:.1f} {plot.bottom}v4"/>'
            f'<text x="{across:.1f}" y="{plot.bottom + 17}" class="middle">{value:.3g}</text>'
        )
    for value in y_ticks:
        _, down = plot.place((plot.x.low, value))
        yield (
            f'<path class="axis" d="M{plot.left - 4} {down:.1f}h4"/>'
            f'<text x="{plot.left - 8}" y="{down + 4:.1f}" class="end">{value:.3g}</text>'
        )
    yield (
        f'<text x="{plot.right}" y="{plot.bottom + 36}" class="end">{html_text(units[0])}</text>'
        f'<text x="{plot.left}" y="{plot.top - 14}">{html_text(units[1])}</text>'
    )


def _key(scale: ShadeScale) -> Iterator[str]:
    """Yield the key: the shades with the losses of the contours."""
    parts = 40
    for number in range(parts):
        top = TOP + SIDE * (parts - 1 - number) / parts
        yield (
            f'<rect x="{KEY_LEFT}" y="{top:.1f}" width="{KEY_WIDTH}" height="{SIDE / parts:.1f}" '
            f'fill-opacity="{number / (parts - 1):.3f}" class="heat"/>'
        )
    for loss in (scale.low, *scale.levels(), scale.high):
        down = TOP + SIDE * (1 - scale.shade(loss))
        yield f'<text x="{KEY_LEFT + KEY_WIDTH + 6}" y="{down + 4:.1f}">{loss:.3g}</text>'
    yield f'<text x="{KEY_LEFT}" y="{TOP - 14}">loss (nats)</text>'
