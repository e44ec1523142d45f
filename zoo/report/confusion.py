"""Confusion matrices, label -> prediction -> number of samples, chosen and drawn as text."""

from collections.abc import Iterator, Mapping, Sequence

from zoo.io.terminal import escape_controls

Counts = Mapping[str, Mapping[str, int]]

HEADING = "rows: label, columns: prediction"
MAX_PAIRS = 20  # pairs that are listed instead of a matrix
NAME_LENGTH = 24  # characters of a name in a matrix
CUT = "\N{HORIZONTAL ELLIPSIS}"


def worst_labels(counts: Counts, limit: int) -> list[str]:
    """Return the labels, or those with the most wrong predictions, in their order."""
    wrong_counts = {}
    for label, row in counts.items():
        wrong_counts[label] = sum(count for name, count in row.items() if name != label)
    by_mistakes = sorted(wrong_counts, key=wrong_counts.__getitem__, reverse=True)
    worst = set(by_mistakes[:limit])
    return [label for label in counts if label in worst]


def worst_pairs(counts: Counts) -> list[tuple[str, str, int]]:
    """Return label, wrong prediction and number of samples, the most frequent first."""
    pairs = []
    for label, row in counts.items():
        for prediction, count in row.items():
            if prediction != label:
                pairs.append((label, prediction, count))
    return sorted(pairs, key=lambda pair: pair[2], reverse=True)


def confusion_lines(counts: Counts, width: int) -> list[str]:
    """Return a matrix as lines of text, or its worst pairs if it is wider than ``width``.

    Columns are headed by the predicted labels, or by their numbers where the names are too long.
    """
    # A column takes three characters: a matrix that cannot fit is not made.
    if 3 * len(counts) >= width:
        return list(_pair_lines(counts, width))
    cells = []
    for row in counts.values():
        cells.append([row.get(name, 0) for name in counts])
    names = [shorten_name(name, NAME_LENGTH) for name in counts]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    numbered_names = [f"{number} {name}" for number, name in zip(numbers, names, strict=True)]
    for row_names, column_names in ((names, names), (numbered_names, numbers)):
        lines = list(_matrix_lines(row_names, column_names, cells))
        if max(map(len, lines)) <= width:
            return [HEADING, *lines]
    return list(_pair_lines(counts, width))


def _matrix_lines(
    row_names: Sequence[str], column_names: Sequence[str], cells: Sequence[Sequence[int]]
) -> Iterator[str]:
    name_width = max(map(len, row_names))
    rows = []
    for row in cells:
        rows.append([f"{count:,}" for count in row])
    widths = []
    for column, name in enumerate(column_names):
        widths.append(max(len(name), *(len(row[column]) for row in rows)))

    def line(name: str, texts: Sequence[str]) -> str:
        columns = [text.rjust(width) for text, width in zip(texts, widths, strict=True)]
        return "  ".join([name.ljust(name_width), *columns])

    yield line("", column_names)
    for name, row_texts in zip(row_names, rows, strict=True):
        yield line(name, row_texts)


def _pair_lines(counts: Counts, width: int) -> Iterator[str]:
    pairs = worst_pairs(counts)
    shown_pairs = pairs[:MAX_PAIRS]
    yield f"most frequent confusions, {len(shown_pairs)} of {len(pairs):,}"
    name_width = 10
    for label, prediction, _ in shown_pairs:
        name_width = max(name_width, len(label), len(prediction))
    name_width = min(name_width, (width - 20) // 2)
    yield f"{'label'.ljust(name_width)}  {'predicted'.ljust(name_width)}  samples"
    for label, prediction, count in shown_pairs:
        label_text = shorten_name(label, name_width).ljust(name_width)
        prediction_text = shorten_name(prediction, name_width).ljust(name_width)
        yield f"{label_text}  {prediction_text}  {f'{count:,}'.rjust(7)}"


def shorten_name(name: str, limit: int) -> str:
    """Return a name without control characters, with the middle left out if it is long."""
    text = escape_controls(name)
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[: limit - 1 - half]}{CUT}{text[len(text) - half :]}"
