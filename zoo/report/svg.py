"""Charts as SVG without scripts, drawn inline in a page whose style sheet sets the colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.io.page_text import html_text

WIDTH = 420
HEIGHT = 236
# Edges of the plot.
LEFT = 54
RIGHT = 400
TOP = 22
BOTTOM = 200
LIMIT = 1000  # points of a curve that are drawn
DOTS = 40  # points of a curve up to which each has a dot
DENSE = 300  # points above which a curve is dense
MARK_CHARACTER = 7.0  # Width of a character of a mark, at most.
MARK_HEIGHT = 14  # Distance of rows of marks.
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
    """Return a chart of curves over steps, as an HTML ``figure``; empty curves are omitted.

    One or two points of a curve are not joined.

    Args:
        title: the caption.
        unit: the unit of the values.
        lines: the curves.
        marks: steps at which something changes, and what; those without points around are left
            out.
        zero: whether the vertical axis includes zero.
    """
    lines = [line for line in lines if line.points]
    steps = []
    values = []
    for line in lines:
        for step, value in line.points:
            steps.append(step)
            values.append(value)
    lowest = min(values)
    if zero:
        lowest = min(lowest, 0)
    x = Axis.around(min(*steps, 0), max(steps), 6, tight=True)
    y = Axis.around(lowest, max(values), 5)
    plot = Plot(x, y)
    elements = [plot.grid(unit, "step")]
    elements += draw_marks([mark for mark in marks if x.low < mark[0] < x.high], plot)
    legend = ""
    for line in lines:
        elements.append(_curve(line, plot))
        if line.name:
            name = html_text(line.name)
            legend += f'<span class="{name}">{name}</span>'
    if legend:
        legend = f'<span class="legend">{legend}</span>'
    return (
        f"<figure><figcaption>{html_text(title)}{legend}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html_text(title)} by step">'
        f"{''.join(elements)}</svg></figure>"
    )


def scatter_chart(
    title: str, units: tuple[str, str], points: Sequence[tuple[str, float, float]]
) -> str:
    """Return a chart of named points, as an HTML ``figure``; both axes start at zero.

    The last point is highlighted.

    Args:
        title: the caption.
        units: units of the horizontal and the vertical axis.
        points: name, horizontal and vertical value.
    """
    x_unit, y_unit = units
    x = Axis.around(0, max(across for _, across, _ in points), 6)
    y = Axis.around(0, max(value for _, _, value in points), 5)
    plot = Plot(x, y)
    elements = [plot.grid(y_unit, x_unit)]
    for number, (name, x_value, y_value) in enumerate(points, 1):
        across, down = plot.place((x_value, y_value))
        colour = "validation" if number == len(points) else "train"
        text_x = across + 9
        anchor = ""
        if across > (LEFT + RIGHT) / 2:
            # The name is left of the point.
            text_x = across - 9
            anchor = ' class="end"'
        elements.append(
            f'<g class="{colour}"><circle cx="{across:.1f}" cy="{down:.1f}" r="5"/></g>'
            f'<text x="{text_x:.1f}" y="{down + 4:.1f}"{anchor}>{html_text(name)}</text>'
        )
    return (
        f"<figure><figcaption>{html_text(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html_text(title)}">'
        f"{''.join(elements)}</svg></figure>"
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
        if (high - low) / count <= 0:
            # The values are equal, or their difference is too small for a float.
            spread = abs(low) / 10 or 1.0
            low = low - spread
            high = high + spread
        width = (high - low) / count
        power = 10.0 ** math.floor(math.log10(width))
        steps = [power * factor for factor in (1, 2, 5, 10)]
        step = next(step for step in steps if step >= width * (1 - 1e-9))
        first_tick = math.floor(low / step + 1e-9) * step
        last_tick = math.ceil(high / step - 1e-9) * step
        upper_end = high if tight else last_tick
        return cls(first_tick, upper_end, step)

    def ticks(self) -> list[float]:
        """Return the values of the ticks, in ascending order."""
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        first_number = round(self.low / self.step)
        return [(first_number + k) * self.step for k in range(count + 1)]

    def part(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Plot:
    """The area of a chart, between two axes."""

    x: Axis  # horizontal axis
    y: Axis  # vertical axis
    # The edges, in the chart's units.
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
        elements = [
            f'<text x="{self.left}" y="{self.top - 10}" class="unit">{html_text(unit)}</text>'
        ]
        for value in self.y.ticks():
            _, down = self.place((self.x.low, value))
            elements.append(
                f'<path class="grid" d="M{self.left} {down:.1f}H{self.right}"/>'
                f'<text x="{self.left - 6}" y="{down + 4:.1f}" class="end">'
                f"{label(value, self.y.step)}</text>"
            )
        elements.append(self.scale(across_unit))
        return "".join(elements)

    def scale(self, unit: str) -> str:
        """Return the horizontal axis with its ticks and unit."""
        elements = []
        for value in self.x.ticks():
            across, _ = self.place((value, self.y.low))
            elements.append(
                f'<path class="axis" d="M{across:.1f} {self.bottom}v4"/>'
                f'<text x="{across:.1f}" y="{self.bottom + 17}" class="middle">'
                f"{label(value, self.x.step)}</text>"
            )
        elements.append(f'<path class="axis" d="M{self.left} {self.bottom}H{self.right}"/>')
        elements.append(
            f'<text x="{self.right}" y="{self.bottom + 32}" class="end unit">'
            f"{html_text(unit)}</text>"
        )
        return "".join(elements)


def label(value: float, step: float) -> str:
    """Format the value of a tick with as many digits as distinguish it from the next one."""
    return _label(value, step).replace("-", "\N{MINUS SIGN}")


def _label(value: float, step: float) -> str:
    size = abs(value)
    if size < step / 1e6:
        return "0"
    if step < 1e-3 and size < 0.1:
        digits = max(0, _exponent(size) - _exponent(step))
        mantissa, _, power = f"{value:.{digits}e}".partition("e")
        return f"{_trim_zeros(mantissa)}e{int(power)}"
    for smallest, unit, letter in UNITS:
        if size >= smallest and step >= unit / 100:
            digits = max(0, -_exponent(step / unit))
            return _trim_zeros(f"{value / unit:,.{digits}f}") + letter
    digits = max(0, -_exponent(step))
    return f"{value:,.{digits}f}"


def _trim_zeros(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _exponent(value: float) -> int:
    """Return the power of ten of the first digit of a number."""
    return math.floor(math.log10(value) + 1e-9)


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


def draw_marks(marks: Sequence[tuple[int, str]], plot: Plot) -> list[str]:
    """Return vertical lines with what begins there; texts that would overlap are in rows."""
    elements = []
    row_spans: list[list[tuple[float, float]]] = []
    for step, text in marks:
        across, _ = plot.place((step, plot.y.low))
        width = MARK_CHARACTER * len(text)
        text_x = across + 4
        span = (text_x, text_x + width)
        classes = "mark"
        if across > (plot.left + plot.right) / 2:
            # The text is left of the line.
            text_x = across - 4
            span = (text_x - width, text_x)
            classes = "mark end"
        row = _free_row(span, row_spans)
        elements.append(
            f'<path class="mark" d="M{across:.1f} {plot.top}V{plot.bottom}"/>'
            f'<text x="{text_x:.1f}" y="{plot.top + 9 + MARK_HEIGHT * row}" class="{classes}">'
            f"{html_text(text)}</text>"
        )
    return elements


def _free_row(span: tuple[float, float], row_spans: list[list[tuple[float, float]]]) -> int:
    """Return the first row with room from left to right, and take the room."""
    for row, spans in enumerate(row_spans):
        if all(span[1] <= left or span[0] >= right for left, right in spans):
            spans.append(span)
            return row
    row_spans.append([span])
    return len(row_spans) - 1


def _curve(line: Series, plot: Plot) -> str:
    points = downsample(line.points)
    places = [plot.place(point) for point in points]
    name = html_text(line.name)
    polyline = ""
    if len(points) > FEW:
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
        classes = f"{name} dense" if len(points) > DENSE else name
        polyline = f'<polyline class="{classes}" points="{path}"/>'
    if len(points) > DOTS and line.name != "validation":
        return polyline
    radius = 1.2
    if len(points) <= FEW:
        radius = 4
    elif len(points) <= DOTS:
        radius = 2.6
    dots = ""
    for (across, down), (step, value) in zip(places, points, strict=True):
        dots += (
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius}">'
            f"<title>step {step:,.0f}: {value:.5g}</title></circle>"
        )
    return f'{polyline}<g class="{name}">{dots}</g>'
