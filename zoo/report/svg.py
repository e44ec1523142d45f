"""Charts as SVG without scripts, drawn inline in a page whose style sheet sets the colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.io.page_text import html_text

WIDTH = 420
HEIGHT = 236
# of the plot
LEFT = 54
RIGHT = 400
TOP = 22
BOTTOM = 200
LIMIT = 1000
DOTS = 40
DENSE = 300
FEW = 2  # points that are not joined: a line would show a course that was not measured
UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A curve of a chart."""

    name: str  # name in the legend and CSS class; empty for a curve without a legend
    points: Sequence[Point]  # step and value, in order of steps


def line_chart(
    title: str,
    unit: str,
    lines: Sequence[Series],
    marks: Sequence[tuple[int, str]] = (),
    *,
    zero: bool = False,
) -> str:
    """Return a chart of curves over steps, as an HTML ``figure``; empty curves are omitted."""
    # ``marks`` are steps at which something changes, and what; those without points around are left
    # out. One or two points of a curve are not joined.
    lines = [line for line in lines if line.points]
    steps = [step for line in lines for step, _ in line.points]
    values = [value for line in lines for _, value in line.points]
    x = Axis.around(min(*steps, 0), max(steps), 6, tight=True)
    y = Axis.around(min(*values, 0) if zero else min(values), max(values), 5)
    plot = Plot(x, y)
    inside = [mark for mark in marks if x.low < mark[0] < x.high]
    drawn = [
        plot.grid(unit, "step"),
        *(draw_mark(*mark, plot) for mark in inside),
        *(_curve(line, plot) for line in lines),
    ]
    names = [html_text(line.name) for line in lines if line.name]
    keys = "".join(f'<span class="{name}">{name}</span>' for name in names)
    legend = f'<span class="legend">{keys}</span>' if keys else ""
    return (
        f"<figure><figcaption>{html_text(title)}{legend}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html_text(title)} by step">'
        f"{''.join(drawn)}</svg></figure>"
    )


def scatter_chart(
    title: str, units: tuple[str, str], points: Sequence[tuple[str, float, float]]
) -> str:
    """Return a chart of named points, as an HTML ``figure``; both axes start at zero."""
    # The last point is highlighted. ``units`` are the horizontal and the vertical axis's
    x = Axis.around(0, max(across for _, across, _ in points), 6)
    y = Axis.around(0, max(value for _, _, value in points), 5)
    plot = Plot(x, y)
    drawn = [plot.grid(units[1], units[0])]
    for number, (name, *values) in enumerate(points, 1):
        across, down = plot.place((values[0], values[1]))
        colour = "validation" if number == len(points) else "train"
        end = across > (LEFT + RIGHT) / 2  # the name is left of the point
        anchor = ' class="end"' if end else ""
        drawn.append(
            f'<g class="{colour}"><circle cx="{across:.1f}" cy="{down:.1f}" r="5"/></g>'
            f'<text x="{across + (-9 if end else 9):.1f}" y="{down + 4:.1f}"{anchor}>'
            f"{html_text(name)}</text>"
        )
    return (
        f"<figure><figcaption>{html_text(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html_text(title)}">'
        f"{''.join(drawn)}</svg></figure>"
    )


@dataclass(frozen=True)
class Axis:
    """An axis: a range of numbers, and the distance of its ticks."""

    low: float  # lower end
    high: float  # upper end
    step: float  # distance of ticks

    @classmethod
    def around(cls, low: float, high: float, count: int, *, tight: bool = False) -> "Axis":
        """Return an axis for values from ``low`` to ``high`` with about ``count`` intervals."""
        if (high - low) / count <= 0:  # a constant, or a difference too small for a float
            spread = abs(low) / 10 or 1.0
            low = low - spread
            high = high + spread
        width = (high - low) / count
        power = 10.0 ** math.floor(math.log10(width))
        step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= width * (1 - 1e-9))
        first = math.floor(low / step + 1e-9) * step
        last = math.ceil(high / step - 1e-9) * step
        return cls(first, high if tight else last, step)

    def ticks(self) -> list[float]:
        """Return the values of the ticks, in ascending order."""
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        first = round(self.low / self.step)
        return [(first + k) * self.step for k in range(count + 1)]

    def part(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Plot:
    """The area of a chart, between two axes."""

    x: Axis  # horizontal axis
    y: Axis  # vertical axis
    # left edge in the chart's units; ``right``, ``top`` and ``bottom`` are the others
    left: float = LEFT
    right: float = RIGHT
    top: float = TOP
    bottom: float = BOTTOM

    def place(self, point: Point) -> Point:
        """Return the coordinates of a point."""
        across = self.left + self.x.part(point[0]) * (self.right - self.left)
        return across, self.bottom - self.y.part(point[1]) * (self.bottom - self.top)

    def grid(self, unit: str, across_unit: str) -> str:
        """Return grid, ticks and units of both axes."""
        drawn = [f'<text x="{self.left}" y="{self.top - 11}" class="unit">{html_text(unit)}</text>']
        for value in self.y.ticks():
            _, down = self.place((self.x.low, value))
            drawn.append(
                f'<path class="grid" d="M{self.left} {down:.1f}H{self.right}"/>'
                f'<text x="{self.left - 6}" y="{down + 4:.1f}" class="end">'
                f"{label(value, self.y.step)}</text>"
            )
        return "".join([*drawn, self.scale(across_unit)])

    def scale(self, unit: str) -> str:
        """Return the horizontal axis with its ticks and unit."""
        drawn = [
            f'<path class="axis" d="M{across:.1f} {self.bottom}v4"/>'
            f'<text x="{across:.1f}" y="{self.bottom + 17}" class="middle">'
            f"{label(value, self.x.step)}</text>"
            for value in self.x.ticks()
            for across, _ in [self.place((value, self.y.low))]
        ]
        drawn.append(f'<path class="axis" d="M{self.left} {self.bottom}H{self.right}"/>')
        drawn.append(
            f'<text x="{self.right}" y="{self.bottom + 32}" class="end unit">'
            f"{html_text(unit)}</text>"
        )
        return "".join(drawn)


def label(value: float, step: float) -> str:
    """Format the value of a tick with as many digits as distinguish it from the next one."""
    return _label(value, step).replace("-", "\N{MINUS SIGN}")


def _label(value: float, step: float) -> str:
    size = abs(value)
    if size < step / 1e6:
        return "0"
    if step < 1e-3 and size < 0.1:
        mantissa, _, power = f"{value:.{max(0, _places(size) - _places(step))}e}".partition("e")
        return f"{_trimmed(mantissa)}e{int(power)}"
    for least, unit, letter in UNITS:
        if size >= least and step >= unit / 100:
            digits = max(0, -_places(step / unit))
            return _trimmed(f"{value / unit:,.{digits}f}") + letter
    return f"{value:,.{max(0, -_places(step))}f}"


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _places(step: float) -> int:
    return math.floor(math.log10(step) + 1e-9)


def downsample(points: Sequence[Point], limit: int = LIMIT) -> list[Point]:
    """Return at most ``limit`` points: minimum and maximum of each run, so that peaks remain."""
    if len(points) <= limit:
        return list(points)
    runs = limit // 2
    selected: list[Point] = []
    for k in range(runs):
        run = points[len(points) * k // runs : len(points) * (k + 1) // runs]
        ends = {min(run, key=lambda point: point[1]), max(run, key=lambda point: point[1])}
        selected += sorted(ends)
    return selected


def draw_mark(step: int, text: str, plot: Plot) -> str:
    """Return a vertical line with what begins there."""
    across, _ = plot.place((step, plot.y.low))
    end = across > (plot.left + plot.right) / 2  # the text is left of the line
    anchor = " end" if end else ""
    return (
        f'<path class="mark" d="M{across:.1f} {plot.top}V{plot.bottom}"/>'
        f'<text x="{across + (-4 if end else 4):.1f}" y="{plot.top + 9}" class="mark{anchor}">'
        f"{html_text(text)}</text>"
    )


def _curve(line: Series, plot: Plot) -> str:
    coordinates = [(*plot.place(point), *point) for point in downsample(line.points)]
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down, _, _ in coordinates)
    name = html_text(line.name) + (" dense" if len(coordinates) > DENSE else "")
    few = len(coordinates) <= FEW
    drawn = "" if few else f'<polyline class="{name}" points="{path}"/>'
    if len(coordinates) > DOTS and line.name != "validation":
        return drawn
    size = 4 if few else 2.6 if len(coordinates) <= DOTS else 1.2
    dots = "".join(
        f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{size}">'
        f"<title>step {step:,.0f}: {value:.5g}</title></circle>"
        for across, down, step, value in coordinates
    )
    return f'{drawn}<g class="{html_text(line.name)}">{dots}</g>'
