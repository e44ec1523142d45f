"""Confusion matrices, label -> prediction -> number of samples, chosen and drawn as text."""

from collections.abc import Iterator, Mapping, Sequence

from zoo.io.terminal import escape_controls

Counts = Mapping[str, Mapping[str, int]]

HEADING = "rows: label, columns: prediction"
MOST_PAIRS = 20  # that are listed instead of a matrix
NAME = 24  # characters of a name in a matrix
CUT = "\N{HORIZONTAL ELLIPSIS}"


def worst_labels(counts: Counts, most: int) -> list[str]:
    """Return the labels, or those with the most wrong predictions, in their order."""
    wrong = {
        label: sum(count for other, count in row.items() if other != label)
        for label, row in counts.items()
    }
    worst = {*sorted(wrong, key=wrong.__getitem__, reverse=True)[:most]}
    return [label for label in counts if label in worst]


def worst_pairs(counts: Counts) -> list[tuple[str, str, int]]:
    """Return label, wrong prediction and number of samples, the most frequent first."""
    pairs = [
        (label, prediction, count)
        for label, row in counts.items()
        for prediction, count in row.items()
        if prediction != label
    ]
    return sorted(pairs, key=lambda pair: pair[2], reverse=True)


def confusion_lines(counts: Counts, width: int) -> list[str]:
    """Return a matrix as lines of text, or its worst pairs if it is wider than ``width``."""
    # Columns are headed by the predicted labels, or by their numbers where the names are too long
    if 3 * len(counts) >= width:  # a column takes three characters; no labels² cells are made
        return list(_pairs(counts, width))
    cells = [[row.get(name, 0) for name in counts] for row in counts.values()]
    names = [shorten_name(name, NAME) for name in counts]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    numbered = [f"{number} {name}" for number, name in zip(numbers, names, strict=True)]
    for rows, columns in ((names, names), (numbered, numbers)):
        lines = list(_matrix(rows, columns, cells))
        if max(map(len, lines)) <= width:
            return [HEADING, *lines]
    return list(_pairs(counts, width))


def _matrix(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[int]]
) -> Iterator[str]:
    first = max(map(len, rows))
    widths = [
        max(len(name), *(len(f"{row[k]:,}") for row in cells)) for k, name in enumerate(columns)
    ]
    heads = zip(columns, widths, strict=True)
    yield "  ".join([" " * first, *(name.rjust(width) for name, width in heads)])
    for name, row in zip(rows, cells, strict=True):
        counts = zip(row, widths, strict=True)
        yield "  ".join([name.ljust(first), *(f"{n:,}".rjust(w) for n, w in counts)])


def _pairs(counts: Counts, width: int) -> Iterator[str]:
    pairs = worst_pairs(counts)
    shown = pairs[:MOST_PAIRS]
    yield f"most frequent confusions, {len(shown)} of {len(pairs):,}"
    side = min((width - 20) // 2, max([10, *(len(n) for a, b, _ in shown for n in (a, b))]))
    yield f"{'label'.ljust(side)}  {'predicted'.ljust(side)}  samples"
    for label, prediction, count in shown:
        names = (shorten_name(name, side).ljust(side) for name in (label, prediction))
        yield "  ".join([*names, f"{count:,}".rjust(7)])


def shorten_name(name: str, limit: int) -> str:
    """Return a name without control characters, with the middle left out if it is long."""
    text = escape_controls(name)
    half = (limit - 1) // 2
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1 - half]}{CUT}{text[len(text) - half :]}"
