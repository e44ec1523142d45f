"""Figures as SVG files of their own, for light and dark pages; axes of ``zoo.report.svg``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import NOTHING_LEFT, writing
from zoo.io.page_text import html_text
from zoo.report.confusion import Counts
from zoo.report.drawings import (
    CHARACTER,
    Drawing,
    confusion_drawing,
    drawn_name,
    reliability_drawing,
)
from zoo.report.svg import DOTS, FEW, HEIGHT, LEFT, WIDTH, Axis, Plot, downsample, draw_marks

Band = Sequence[tuple[float, float, float, float]]

MOST_LABELS = 40  # labels of a confusion matrix
SANS_SERIF = 'Helvetica, Arial, "DejaVu Sans", sans-serif'
MONOSPACE = 'Menlo, Consolas, "DejaVu Sans Mono", monospace'
# Colours of series, on a light and on a dark page.
COLOURS = ("#4c78a8", "#e4772e", "#54a24b", "#b0417a", "#2a9d9d", "#8c6d31", "#7f7f7f", "#9467bd")
DARK = ("#79b0ea", "#f2955a", "#7cc474", "#e37fb0", "#4cc9c9", "#c9a55e", "#b0b0b0", "#bb9af0")


def _series(colours: Sequence[str]) -> str:
    """Return the rules of the classes of series."""
    return " ".join(f".s{k} {{ fill: {c}; stroke: {c} }}" for k, c in enumerate(colours))


# Rules of shapes are more specific than those of colours, which the dark page changes
STYLE = f"""
text {{ font: 12px {SANS_SERIF}; fill: #57606a }}
.end {{ text-anchor: end }} .middle {{ text-anchor: middle }}
.page {{ fill: #fff }} .name {{ fill: #1f2328 }} .light {{ fill: #fff }}
.grid, .cell {{ stroke: #e7e5e1 }} .axis, .mark {{ stroke: #8b9199 }}
.right {{ fill: #1f5a99 }} .wrong {{ fill: #b3431e }}
.validation {{ stroke: #4c78a8; fill: #4c78a8 }}
{_series(COLOURS)}
@media (prefers-color-scheme: dark) {{
  text {{ fill: #9198a1 }} .page {{ fill: #0d1117 }} .name {{ fill: #f0f6fc }}
  .grid, .cell {{ stroke: #30363d }} .axis, .mark {{ stroke: #6e7681 }}
  .right {{ fill: #2f6fb5 }} .wrong {{ fill: #c2552f }}
  .validation {{ stroke: #79b0ea; fill: #79b0ea }}
  {_series(DARK)}
}}
.dashed, path.mark {{ stroke-dasharray: 5 4 }} text.mark {{ stroke: none }}
polyline[points] {{ fill: none; stroke-width: 1.8; stroke-linejoin: round }}
polygon[points] {{ fill-opacity: 0.2; stroke: none }}
circle[r] {{ stroke: none }} .key {{ stroke-width: 2 }}
"""


def require_svg(path: Path) -> None:
    """Check that a file can be written as a figure, before its data are computed."""
    if path.suffix.lower() != ".svg":
        raise UsageError(
            f"{path}: figures are written as SVG, and their names must end in .svg",
            "a browser, Inkscape or rsvg-convert turns them into PNG or PDF",
        )


def figure_path(path: Path, name: str) -> Path:
    """Return the file of a figure: the path itself if it has an ending, else a file in it."""
    if path.suffix and not path.is_dir():
        require_svg(path)
        return path
    return path / name


def plot_bands(path: Path, panels: Mapping[str, Mapping[str, Band]], *, x: str) -> None:
    """Write a figure of panels, see ``draw_bands``."""
    _write(path, draw_bands(panels, x=x))


def draw_bands(
    panels: Mapping[str, Mapping[str, Band]], *, x: str, marks: Sequence[tuple[int, str]] = ()
) -> str:
    """Return a figure of panels, one below the other.

    Args:
        panels: unit -> name -> curve, with points of x, middle, lowest and highest value.
        x: the unit of x.
        marks: places at which something changes, and what.
    """
    panel_texts = []
    height = 0.0
    for y, curves in panels.items():
        bands = {name: band for name, band in curves.items() if band}
        elements, panel_height = _draw_bands(bands, x, y, marks)
        content = "".join(elements)
        panel_texts.append(f'<g transform="translate(0 {height:.0f})">{content}</g>')
        height += panel_height
    return figure_svg(WIDTH, height, f"{' and '.join(panels)} by {x}", panel_texts)


def _draw_bands(
    curves: Mapping[str, Band], x: str, y: str, marks: Sequence[tuple[int, str]]
) -> tuple[list[str], float]:
    """Return the elements of a panel, and its height."""
    positions = []
    lowest_values = []
    highest_values = []
    for band in curves.values():
        for position, _, lowest, highest in band:
            positions.append(position)
            lowest_values.append(lowest)
            highest_values.append(highest)
    x_axis = Axis.around(min(0, *positions), max(positions), 6, tight=True)
    y_axis = Axis.around(min(lowest_values), max(highest_values), 5)
    plot = Plot(x_axis, y_axis)
    elements = [plot.grid(y, x)]
    elements += draw_marks(marks, plot)
    for number, (name, band) in enumerate(curves.items()):
        series = f"s{number % len(COLOURS)}"
        elements += _draw_band(band, series, plot)
        down = HEIGHT + 16 + 18 * number  # The line of the legend.
        elements.append(f'<path d="M{LEFT} {down}h18" class="{series} key"/>')
        text = f'<text x="{LEFT + 26}" y="{down + 4}" class="name">{drawn_name(name)}</text>'
        elements.append(text)
    return elements, HEIGHT + 12 + 18 * len(curves)


def _draw_band(band: Band, series: str, plot: Plot) -> Iterator[str]:
    """Yield the elements of a curve and its range."""
    middle = _coordinates([(point[0], point[1]) for point in band], plot)
    low = _coordinates([(point[0], point[2]) for point in band], plot)
    high = _coordinates([(point[0], point[3]) for point in band], plot)
    if len(band) > FEW:
        outline = " ".join([*high, *reversed(low)])
        yield f'<polygon points="{outline}" class="{series}"/>'
        yield _line(" ".join(middle), series)
    else:
        # A line for the range of each point.
        for top, bottom in zip(high, low, strict=True):
            if top != bottom:
                yield _line(f"{top} {bottom}", series)
    if len(band) <= DOTS:
        places = [plot.place((point[0], point[1])) for point in band]
        yield from _dots(places, series)


def _coordinates(points: Sequence[tuple[float, float]], plot: Plot) -> list[str]:
    places = map(plot.place, downsample(points))
    return [f"{across:.1f},{down:.1f}" for across, down in places]


def plot_confusion(path: Path, counts: Counts) -> None:
    """Write a figure of a confusion matrix: label -> predicted label -> number of samples."""
    _write_drawing(path, confusion_drawing(counts, MOST_LABELS))


def plot_reliability(path: Path, points: Sequence[Mapping[str, float]]) -> None:
    """Write a figure of ``confidence``, ``accuracy`` and ``samples`` of bins."""
    _write_drawing(path, reliability_drawing(points))


def plot_speeds(path: Path, speeds: Mapping[str, Sequence[float]]) -> None:
    """Write a figure of throughput and latency by backend.

    Args:
        path: the file.
        speeds: backend -> tokens per second, then the latency of one row in ms: the median and
            higher percentiles.
    """
    names = [drawn_name(name) for name in speeds]
    margin = 20 + CHARACTER * max(len(name) for name in names)
    rows = Axis(0, len(speeds), 1)
    bottom = 10 + 34 * len(speeds)
    fastest = max(values[0] for values in speeds.values())
    slowest = max(max(values[1:]) for values in speeds.values())
    left = Plot(Axis.around(0, fastest, 4), rows, margin, margin + 270, 10, bottom)
    right = Plot(Axis.around(0, slowest, 4), rows, left.right + 30, left.right + 300, 10, bottom)
    elements = [
        left.scale("tokens per second"),
        right.scale("latency of one row, ms (dot: median)"),
    ]
    for row, (name, (speed, *latencies)) in enumerate(zip(names, speeds.values(), strict=True)):
        end, down = left.place((speed, len(speeds) - row - 0.5))
        elements.append(
            f'<text x="{margin - 6:.1f}" y="{down + 4:.1f}" class="end name">{name}</text>'
            f'<rect x="{margin:.1f}" y="{down - 9:.1f}" width="{end - margin:.1f}" height="18" '
            'class="s0"/>'
        )
        places = [right.place((latency, 0))[0] for latency in latencies]
        elements.append(f'<path class="axis" d="M{min(places):.1f} {down:.1f}H{max(places):.1f}"/>')
        elements += _dots([(places[0], down)], "s0")
        for place in places[1:]:
            elements.append(f'<path d="M{place:.1f} {down - 6:.1f}v12" class="s0 key"/>')
    text = figure_svg(right.right + 20, bottom + 44, "throughput and latency", elements)
    _write(path, text)


def _write(path: Path, figure: str) -> None:
    has_figures = path.parent.is_dir() and any(path.parent.glob("*.svg"))
    remains = "earlier figures remain" if has_figures else NOTHING_LEFT
    with writing(path, remains=remains):
        atomic_write(path, figure.encode())


def _line(points: str, series: str) -> str:
    return f'<polyline points="{points}" class="{series}"/>'


def _dots(places: Iterable[tuple[float, float]], series: str) -> Iterator[str]:
    for across, down in places:
        yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3" class="{series}"/>'


def _write_drawing(path: Path, drawing: Drawing) -> None:
    text = figure_svg(drawing.width, drawing.height, drawing.title, drawing.parts)
    _write(path, text)


def figure_svg(
    width: float, height: float, title: str, elements: Sequence[str], style: str = STYLE
) -> str:
    """Return a figure, drawn at 1.5 times its units."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{1.5 * width:.0f}" height="{1.5 * height:.0f}" role="img" '
        f'aria-label="{html_text(title)}">\n<style>{style}</style>\n'
        f'<rect width="100%" height="100%" class="page"/>\n{"".join(elements)}\n</svg>\n'
    )
