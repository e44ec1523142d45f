"""Figures by matplotlib, an optional dependency."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_write

FORMATS = (".svg", ".png", ".pdf")
Band = Sequence[tuple[float, float, float, float]]

MOST_LABELS = 40  # of a figure of a confusion matrix


def require_matplotlib(path: Path) -> Any:
    """Import matplotlib without a display.

    Args:
        path: file of the figure.

    Raises:
        UsageError: it is not installed, or cannot write the file's format.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"{path} is no figure that can be written", f"its name must end in {', '.join(FORMATS)}"
        )
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "figures take matplotlib, which is not installed", "pip install 'plm-zoo[plots]'"
        ) from error
    matplotlib.use("agg")
    return matplotlib


def plot_confusion(path: Path, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Write a figure of a confusion matrix: counts, and shares of each row as shades.

    Args:
        path: file to write; the suffix decides the format.
        counts: label -> predicted label -> number of samples; cells without samples may be left
            out. Of more than ``MOST_LABELS``, those with the most wrong predictions are drawn.

    Raises:
        UsageError: see ``require_matplotlib``.
        OSError: the file cannot be written.
    """
    require_matplotlib(path)
    from matplotlib.figure import Figure

    labels = _worst_labels(counts)
    size = 2.5 + 0.5 * len(labels)
    rows = [[counts[label].get(other, 0) for other in labels] for label in labels]
    totals = [max(1, sum(counts[label].values())) for label in labels]
    shares = [[count / total for count in row] for row, total in zip(rows, totals, strict=True)]
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for y, row in enumerate(rows):
        for x, count in enumerate(row):
            shade = "white" if shares[y][x] > 0.6 else "black"
            axes.text(x, y, f"{count:,}", ha="center", va="center", color=shade)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("predicted label")
    axes.set_ylabel("label")
    _write(figure, path)


def _worst_labels(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the labels, or ``MOST_LABELS`` with the most wrong predictions, in their order."""
    wrong = {
        label: sum(count for other, count in row.items() if other != label)
        for label, row in counts.items()
    }
    worst = {*sorted(wrong, key=wrong.__getitem__, reverse=True)[:MOST_LABELS]}
    return [label for label in counts if label in worst]


def plot_reliability(path: Path, points: Sequence[Mapping[str, float]]) -> None:
    """Write a figure of a reliability curve, beside the diagonal of a calibrated model.

    Args:
        path: file to write; the suffix decides the format.
        points: ``confidence`` and ``accuracy`` of bins.

    Raises:
        UsageError: see ``require_matplotlib``.
        OSError: the file cannot be written.
    """
    require_matplotlib(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    confidences, accuracies = (
        [point[name] for point in points] for name in ("confidence", "accuracy")
    )
    axes.plot(confidences, accuracies, marker="o", linewidth=1.6, label="model")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    _write(figure, path)


def plot_speeds(path: Path, speeds: Mapping[str, Sequence[float]]) -> None:
    """Write a figure of throughput and latency by backend.

    Args:
        path: file to write; the suffix decides the format.
        speeds: name -> tokens per second, and the median and higher percentiles of the latency of
            one row in ms.

    Raises:
        UsageError: see ``require_matplotlib``.
        OSError: the file cannot be written.
    """
    require_matplotlib(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.4 + 0.5 * len(speeds)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names, rows = list(speeds), range(len(speeds))
    left.barh(rows, [values[0] for values in speeds.values()], color="tab:blue")
    left.set_yticks(rows, names)
    left.invert_yaxis()
    left.set_xlabel("tokens per second")
    for row, (_, median, *higher) in enumerate(speeds.values()):
        right.plot([median, *higher], [row] * (1 + len(higher)), color="0.6", linewidth=1)
        right.plot([median], [row], "o", color="tab:blue")
        right.plot(higher, [row] * len(higher), "|", color="tab:blue", markersize=12)
    right.set_xlim(left=0)
    right.set_xlabel("latency of one row (ms): median and higher percentiles")
    _write(figure, path)


def _write(figure: Any, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=150)
    atomic_write(path, buffer.getvalue())


def plot_bands(path: Path, curves: Mapping[str, Band], *, x: str, y: str) -> None:
    """Write a figure of curves, each with a band around it.

    Args:
        path: file to write; the suffix decides the format.
        curves: name -> points (x, middle, lowest, highest).
        x: label of the horizontal axis.
        y: label of the vertical axis.

    Raises:
        UsageError: see ``require_matplotlib``.
        OSError: the file cannot be written.
    """
    require_matplotlib(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        steps, middle, low, high = zip(*points, strict=True)
        (line,) = axes.plot(steps, middle, label=name, linewidth=1.6)
        axes.fill_between(steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    _write(figure, path)
