"""Drawings of a classifier's predictions, which are figures of their own or part of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zoo.io.page_text import html_text
from zoo.report.confusion import Counts, shorten_name, worst_labels
from zoo.report.svg import LEFT, Axis, Plot

MAX_CHARACTERS = 48  # characters of a name; the middle of longer ones is left out
CHARACTER = 6.4  # approximate width of a character
CELL = 44  # width and height of a cell of a confusion matrix
BAR = 22  # height of a row of bars
DARK = 0.55  # share above which the text of a cell is light


@dataclass(frozen=True)
class Drawing:
    """Content of an SVG image, and its size.

    Colours follow classes: ``zoo/report/templates/style.css`` has them for pages, in light and
    dark, and ``STYLE`` in ``zoo/report/figures.py`` for files.
    """

    title: str
    width: float
    height: float
    parts: Sequence[str]

    @property
    def content(self) -> str:
        """The elements."""
        return "".join(self.parts)

    def figure(self) -> str:
        """Return the drawing as an HTML ``figure``, not much larger than its units."""
        size = f"0 0 {self.width:.0f} {self.height:.0f}"
        return (
            f"<figure><figcaption>{html_text(self.title)}</figcaption>"
            f'<svg viewBox="{size}" style="max-width:{1.15 * self.width:.0f}px" role="img" '
            f'aria-label="{html_text(self.title)}">{self.content}</svg></figure>'
        )


def confusion_drawing(counts: Counts, limit: int) -> Drawing:
    """Return a confusion matrix, whose shades are shares of a row.

    Args:
        counts: label -> predicted label -> number of samples.
        limit: number of labels; if there are more, those with the most wrong predictions are
            drawn.
    """
    labels = worst_labels(counts, limit)
    names = [drawn_name(name) for name in labels]
    margin = 28 + CHARACTER * max(map(len, names))
    side = CELL * len(labels)
    parts = [
        f'<text x="14" y="{12 + side / 2}" class="middle" '
        f'transform="rotate(-90 14 {12 + side / 2})">label</text>'
    ]
    for row, name in enumerate(labels):
        total = max(1, sum(counts[name].values()))
        centre = 12 + CELL * (row + 0.5)
        parts.append(
            f'<text x="{margin - 6:.1f}" y="{centre + 4}" class="end name">{names[row]}</text>'
        )
        for column, other in enumerate(labels):
            count = counts[name].get(other, 0)
            across = margin + CELL * column
            share = count / total
            cell_class = "right" if other == name else "wrong"
            text_class = "light" if share > DARK else "name"
            parts.append(
                f'<rect x="{across:.1f}" y="{12 + CELL * row}" width="{CELL}" height="{CELL}" '
                f'fill-opacity="{share:.3f}" class="cell {cell_class}"/>'
                f'<text x="{across + CELL / 2:.1f}" y="{centre + 4}" '
                f'class="middle {text_class}">{count:,}</text>'
            )
    for column, name in enumerate(names):
        place = f"{margin + CELL * (column + 0.5) + 4:.1f} {side + 26}"
        parts.append(
            f'<text class="end name" transform="translate({place}) rotate(-45)">{name}</text>'
        )
    height = side + 44 + 0.72 * margin
    parts.append(
        f'<text x="{margin + side / 2:.1f}" y="{height - 8:.1f}" class="middle">'
        "predicted label</text>"
    )
    return Drawing("Confusion matrix", margin + side + 12, height, parts)


def reliability_drawing(points: Sequence[Mapping[str, float]]) -> Drawing:
    """Return ``accuracy`` by ``confidence`` of bins, with their numbers of ``samples`` as bars."""
    plot = Plot(Axis(0, 1, 0.2), Axis(0, 1, 0.2), right=LEFT + 280, bottom=22 + 240)
    bars = Plot(plot.x, Axis(0, 1, 0.5), right=plot.right, top=plot.bottom + 44, bottom=354)
    places = [plot.place((point["confidence"], point["accuracy"])) for point in points]
    most_samples = max(int(point["samples"]) for point in points)
    parts = [
        plot.grid("accuracy", "confidence"),
        f'<path class="axis dashed" d="M{LEFT} {plot.bottom}L{plot.right} {plot.top}"/>',
    ]
    if len(places) > 2:
        curve = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
        parts.append(f'<polyline class="validation" points="{curve}"/>')
    parts.append('<g class="validation">')
    for (across, down), point in zip(places, points, strict=True):
        title = (
            f"{int(point['samples']):,} samples of confidence {point['confidence']:.3f}, "
            f"accuracy {point['accuracy']:.3f}"
        )
        parts.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3"><title>{title}</title></circle>'
        )
    parts.append("</g>")
    for (across, _), point in zip(places, points, strict=True):
        _, top = bars.place((0, point["samples"] / most_samples))
        parts.append(
            f'<rect class="cell right" x="{max(LEFT, across - 7):.1f}" y="{top:.1f}" width="14" '
            f'height="{bars.bottom - top:.1f}"/>'
        )
    parts += [
        f'<path class="axis" d="M{LEFT} {bars.bottom}H{plot.right}"/>',
        f'<text x="{LEFT - 6}" y="{bars.top + 8}" class="end">{most_samples:,}</text>',
        f'<text x="{plot.right}" y="{bars.bottom + 16}" class="end unit">samples by confidence'
        "</text>",
        f'<text x="{plot.right - 6}" y="{plot.bottom - 8}" class="end unit">'
        "dashed: calibrated</text>",
    ]
    return Drawing("Accuracy by confidence", plot.right + 20, bars.bottom + 26, parts)


def labels_drawing(labels: Mapping[str, tuple[int, int]], limit: int) -> Drawing:
    """Return bars of samples by label.

    Args:
        labels: label -> (number of samples, number of those that are predicted wrong).
        limit: number of labels; if there are more, the most frequent ones are drawn.
    """
    by_size = sorted(labels, key=lambda label: labels[label][0], reverse=True)
    shown_labels = by_size[:limit]
    names = [drawn_name(name) for name in shown_labels]
    margin = 16 + CHARACTER * max(map(len, names))
    largest = max(1, *(labels[label][0] for label in shown_labels))
    width = 260.0
    parts = list[str]()
    for row, (label, name) in enumerate(zip(shown_labels, names, strict=True)):
        samples, wrong = labels[label]
        bar_width = width * samples / largest
        wrong_width = width * wrong / largest
        right_width = bar_width - wrong_width
        top = 8 + BAR * row
        text = f"{samples:,}"
        if wrong:
            text += f" ({wrong:,} wrong)"
        parts.append(
            f'<text x="{margin - 6:.1f}" y="{top + 12}" class="end name">{name}</text>'
            f'<rect class="cell right" x="{margin:.1f}" y="{top}" width="{right_width:.1f}" '
            f'height="{BAR - 6}"/>'
            f'<rect class="cell wrong" x="{margin + bar_width - wrong_width:.1f}" y="{top}" '
            f'width="{wrong_width:.1f}" height="{BAR - 6}"/>'
            f'<text x="{margin + bar_width + 6:.1f}" y="{top + 12}">{text}</text>'
        )
    title = "Samples of each label"
    if len(labels) > len(shown_labels):
        title += f", {len(shown_labels)} of {len(labels):,} labels"
    return Drawing(title, margin + width + 130, 14 + BAR * len(shown_labels), parts)


def ranges_drawing(
    title: str, rows: Sequence[Mapping[str, float]], names: Sequence[str]
) -> Drawing:
    """Return the ``accuracy`` of named rows as points, with intervals and ranges.

    Args:
        title: the caption.
        rows: accuracies with the ends ``low`` and ``high`` of their intervals, which are lines,
            and perhaps ``lowest`` and ``highest``, which are bars.
        names: a name for each row.
    """
    drawn_names = [drawn_name(name) for name in names]
    margin = 16 + CHARACTER * max(map(len, drawn_names))
    values = []
    for row in rows:
        values += [row[name] for name in ("low", "high", "lowest", "highest") if name in row]
    bottom = 8.0 + BAR * len(rows)
    plot = Plot(
        Axis.around(min(values), max(values), 5),
        Axis(0, 1, 1),
        left=margin,
        right=margin + 300,
        top=8,
        bottom=bottom,
    )
    parts = [plot.scale("accuracy")]
    for number, (row, name) in enumerate(zip(rows, drawn_names, strict=True)):
        middle = 8 + BAR * (number + 0.5)
        low, _ = plot.place((row["low"], 0))
        high, _ = plot.place((row["high"], 0))
        mean, _ = plot.place((row["accuracy"], 0))
        tooltip = f"{row['accuracy']:.3f}, interval {row['low']:.3f} to {row['high']:.3f}"
        parts.append(
            f'<text x="{margin - 6:.1f}" y="{middle + 4:.1f}" class="end name">{name}</text>'
        )
        if "lowest" in row:
            lowest, _ = plot.place((row["lowest"], 0))
            highest, _ = plot.place((row["highest"], 0))
            tooltip += f", range {row['lowest']:.3f} to {row['highest']:.3f}"
            parts.append(
                f'<rect class="cell right" fill-opacity="0.3" x="{lowest:.1f}" '
                f'y="{middle - 7:.1f}" width="{highest - lowest:.1f}" height="14"/>'
            )
        parts.append(
            f'<path class="axis" d="M{low:.1f} {middle:.1f}H{high:.1f}'
            f'M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8"/>'
            f'<g class="validation"><circle cx="{mean:.1f}" cy="{middle:.1f}" r="4">'
            f"<title>{tooltip}</title></circle></g>"
        )
    note = "lines: 95 % interval"
    if "lowest" in rows[0]:
        note += "; bars: range"
    parts.append(f'<text x="{margin:.1f}" y="{bottom + 32:.1f}" class="unit">{note}</text>')
    return Drawing(title, plot.right + 24, bottom + 42, parts)


def drawn_name(name: str) -> str:
    """Return a name for SVG, with the middle left out if it is long."""
    return html_text(shorten_name(name, MAX_CHARACTERS))
