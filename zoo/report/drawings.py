"""Drawings of a classifier's predictions, which are figures of their own or part of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zoo.io.page_text import html_text
from zoo.report.confusion import Counts, shorten_name, worst_labels
from zoo.report.svg import LEFT, Axis, Plot

MOST_CHARACTERS = 48  # of a name; the middle of longer ones is left out
CHARACTER = 6.4  # approximate width
CELL = 44  # of a confusion matrix
BAR = 22  # height of a row of bars
DARK = 0.55  # share above which the text of a cell is light


@dataclass(frozen=True)
class Drawing:
    """Content of an SVG image, and its size."""

    # Colours follow classes: ``zoo/report/templates/style.css`` has them for pages, in light and
    # dark, and ``STYLE`` in ``zoo/report/figures.py`` for files.

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


def confusion_drawing(counts: Counts, most: int) -> Drawing:
    """Return a confusion matrix: label -> predicted label -> number of samples."""
    # Shades are shares of a row. Of more than ``most`` labels, those with the most wrong
    # predictions are drawn.
    labels = worst_labels(counts, most)
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
            kind = "right" if other == name else "wrong"
            parts.append(
                f'<rect x="{across:.1f}" y="{12 + CELL * row}" width="{CELL}" height="{CELL}" '
                f'fill-opacity="{share:.3f}" class="cell {kind}"/>'
                f'<text x="{across + CELL / 2:.1f}" y="{centre + 4}" '
                f'class="middle {"light" if share > DARK else "name"}">{count:,}</text>'
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
    most = max(int(point["samples"]) for point in points)
    curve = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    parts = [
        plot.grid("accuracy", "confidence"),
        f'<path class="axis dashed" d="M{LEFT} {plot.bottom}L{plot.right} {plot.top}"/>',
        *([f'<polyline class="validation" points="{curve}"/>'] if len(places) > 2 else []),
        '<g class="validation">',
    ]
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
        _, top = bars.place((0, point["samples"] / most))
        parts.append(
            f'<rect class="cell right" x="{max(LEFT, across - 7):.1f}" y="{top:.1f}" width="14" '
            f'height="{bars.bottom - top:.1f}"/>'
        )
    parts += [
        f'<path class="axis" d="M{LEFT} {bars.bottom}H{plot.right}"/>',
        f'<text x="{LEFT - 6}" y="{bars.top + 8}" class="end">{most:,}</text>',
        f'<text x="{plot.right}" y="{bars.bottom + 16}" class="end unit">samples by confidence'
        "</text>",
        f'<text x="{plot.right - 6}" y="{plot.bottom - 8}" class="end unit">'
        "dashed: calibrated</text>",
    ]
    return Drawing("Accuracy by confidence", plot.right + 20, bars.bottom + 26, parts)


def labels_drawing(labels: Mapping[str, tuple[int, int]], most: int) -> Drawing:
    """Return bars of samples by label: label -> (samples, those that are predicted wrong)."""
    # Of more than ``most`` labels, the most frequent ones are drawn.
    by_size = sorted(labels, key=lambda label: labels[label][0], reverse=True)
    chosen = by_size[:most]
    names = [drawn_name(name) for name in chosen]
    margin = 16 + CHARACTER * max(map(len, names))
    largest = max(1, *(labels[name][0] for name in chosen))
    width = 260.0
    parts = list[str]()
    for row, (name, drawn) in enumerate(zip(chosen, names, strict=True)):
        samples, wrong = labels[name]
        long = width * samples / largest
        missed = width * wrong / largest
        top = 8 + BAR * row
        parts.append(
            f'<text x="{margin - 6:.1f}" y="{top + 12}" class="end name">{drawn}</text>'
            f'<rect class="cell right" x="{margin:.1f}" y="{top}" width="{long - missed:.1f}" '
            f'height="{BAR - 6}"/>'
            f'<rect class="cell wrong" x="{margin + long - missed:.1f}" y="{top}" '
            f'width="{missed:.1f}" height="{BAR - 6}"/>'
            f'<text x="{margin + long + 6:.1f}" y="{top + 12}">{samples:,}'
            f"{f' ({wrong:,} wrong)' if wrong else ''}</text>"
        )
    of = f", {len(chosen)} of {len(labels):,} labels" if len(labels) > len(chosen) else ""
    return Drawing(
        f"Samples of each label{of}", margin + width + 130, 14 + BAR * len(chosen), parts
    )


def drawn_name(name: str) -> str:
    """Return a name for SVG, with the middle left out if it is long."""
    return html_text(shorten_name(name, MOST_CHARACTERS))
