"""Pictures of ``zoo look``: one view of what a model computes, as SVG."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from zoo.errors import UsageError
from zoo.inspection.formats import PictureSettings, View
from zoo.inspection.inspection import (
    AttentionMaps,
    Floats,
    LayerPredictions,
    Look,
    StackView,
    TextView,
    readable,
)
from zoo.io.page_text import html_text
from zoo.report.confusion import shorten_name
from zoo.report.figures import MONOSPACE, STYLE, figure_svg

CHARACTER = 7.0  # Width of a character of a token.
MAX_TOKEN = 20  # Characters of a token next to a matrix; the middle of longer ones is left out.
MAX_PREDICTION = 14  # Characters of a token in a table.
CELL = 20  # Width and height of a cell of a matrix, and height of a row of a table.
MIN_COLUMN = 48  # Width of a column of a table.
MAX_WIDTH = 1100  # Width at which a table continues in a new block.
GAP = 14
HEADING = 24  # Height of the line above a panel.
STRONG = 0.65  # Opacity above which the text of a cell is light.
PICTURE_STYLE = f"""{STYLE}
.token {{ font: 11px {MONOSPACE}; fill: #1f2328 }}
.token.light {{ fill: #fff }} .heat {{ fill: #3460a0 }}
.frame {{ fill: none; stroke: #8b9199 }} .heading {{ fill: #1f2328; font-weight: bold }}
@media (prefers-color-scheme: dark) {{
  .token, .heading {{ fill: #f0f6fc }} .token.light {{ fill: #0d1117 }} .heat {{ fill: #7aaaf0 }}
}}
"""


@dataclass(frozen=True)
class Panel:
    """A part of a picture, below a line of text."""

    heading: str
    width: float
    height: float
    elements: list[str]


def draw(look: Look, settings: PictureSettings) -> str:
    """Return a picture of one view, with a panel for each text and each map of a model.

    Raises:
        UsageError: the model has no such view, layer or head.
    """
    view = settings.view or _default_view(look)
    if settings.head is not None and view != "attention":
        raise UsageError(
            f"{look.model} computes no attention, which --head selects", "leave --head out"
        )
    match view:
        case "attention":
            panels = list(_attention_panels(look, settings))
        case "similarity":
            panels = [_similarity_panel(look, settings.layer)]
        case "predictions":
            panels = list(_prediction_panels(look, settings.layer))
        case _:
            assert_never(view)
    # The last parts of a path say which model it is.
    title = f"{view} of {'/'.join(look.model.rstrip('/').split('/')[-2:])}"
    return draw_panels(title, panels)


def draw_panels(title: str, panels: Sequence[Panel]) -> str:
    """Return a picture of panels, one below the other."""
    elements = []
    width = 0.0
    height = float(GAP)
    for panel in panels:
        heading = html_text(panel.heading)
        content = "".join(panel.elements)
        elements.append(
            f'<g transform="translate({GAP} {height:.0f})">'
            f'<text x="0" y="12" class="heading">{heading}</text>'
            f'<g transform="translate(0 {HEADING})">{content}</g></g>'
        )
        # Headings have proportional letters, which are narrower than those of tokens.
        width = max(width, panel.width, CHARACTER * text_width(panel.heading))
        height += HEADING + panel.height + GAP
    return figure_svg(width + 2 * GAP, height, title, elements, PICTURE_STYLE)


def _default_view(look: Look) -> View:
    for stack in look.texts[0].stacks:
        if stack.attention:
            return "attention"
    return "similarity"


def _attention_panels(look: Look, settings: PictureSettings) -> Iterator[Panel]:
    """Yield the maps of all stacks and texts, as far as they have the layer."""
    layers: set[int] = set()
    for stack in look.texts[0].stacks:
        for maps in stack.attention:
            layers.update(maps.layers)
    if not layers:
        raise UsageError(
            f"the layers of {look.model} compute no attention", "give --view similarity"
        )
    if settings.layer is not None and settings.layer not in layers:
        raise UsageError(
            f"{look.model} computes no attention in layer {settings.layer}",
            f"its layers with attention are {', '.join(map(str, sorted(layers)))}",
        )
    for view in look.texts:
        for stack in view.stacks:
            for maps in stack.attention:
                layer = maps.layers[-1] if settings.layer is None else settings.layer
                if layer in maps.layers:
                    yield _attention_panel(look, view, stack, maps, layer, settings.head)


def _attention_panel(
    look: Look, view: TextView, stack: StackView, maps: AttentionMaps, layer: int, head: int | None
) -> Panel:
    """Return a matrix with a row for each token, and the tokens to which it attends as columns."""
    values = maps.values[maps.layers.index(layer)]
    count = len(values)
    if head is not None and head > count:
        raise UsageError(
            f"{look.model} has no head {head} in layer {layer}", f"its heads are 1 to {count}"
        )
    if head is None:
        weights = values.mean(axis=0)
        name = f"mean of {count} heads" if count > 1 else "its head"
    else:
        weights = values[head - 1]
        name = f"head {head}"
    columns = stack.shown
    title = f"Attention, layer {layer}, {name}"
    if maps.name == "cross":
        columns = view.stacks[0].shown
        title += f": {stack.name} to {view.stacks[0].name}"
    elif len(view.stacks) > 1:
        title += f": {stack.name}"
    # Most weights are small: the shade is their root, as on the page.
    return matrix_panel(title, stack.shown, columns, weights, lambda weight: weight**0.5)


def _similarity_panel(look: Look, layer: int | None) -> Panel:
    """Return the cosines of the words of the first and the last text, which may be the same."""
    names = look.texts[0].stacks[0].layers
    layer = _hidden_state(look, layer, list(range(len(names))))
    rows = [word.text for word in look.texts[0].words]
    columns = [word.text for word in look.texts[-1].words]
    cosines = look.word_similarities()[layer][: len(rows), -len(columns) :]
    title = f"Cosine of words, {names[layer]}"
    return matrix_panel(title, rows, columns, cosines, lambda cosine: max(cosine, 0.0))


def _prediction_panels(look: Look, layer: int | None) -> Iterator[Panel]:
    """Yield a table for each kind of predictions of each text."""
    has_predictions = False
    for view in look.texts:
        for stack in view.stacks:
            for predictions in stack.predictions:
                has_predictions = True
                yield _prediction_panel(look, stack, predictions, layer)
    if not has_predictions:
        raise UsageError(f"the head of {look.model} predicts no tokens", "give --view similarity")


def _prediction_panel(
    look: Look, stack: StackView, predictions: LayerPredictions, layer: int | None
) -> Panel:
    """Return the best prediction of each layer, or all that are kept of one layer."""
    row_names = []
    rows: list[list[tuple[str, float]]] = []
    if layer is None:
        title = f"Prediction of each layer: {predictions.name}"
        for number in reversed(range(len(predictions.layers))):
            row_names.append(stack.layers[predictions.layers[number]])
            rows.append(_ranked_predictions(predictions, number, 0))
    else:
        state = _hidden_state(look, layer, predictions.layers)
        number = predictions.layers.index(state)
        title = f"Predictions of {stack.layers[state]}: {predictions.name}"
        for rank in range(predictions.probabilities.shape[-1]):
            row_names.append(str(rank + 1))
            rows.append(_ranked_predictions(predictions, number, rank))
    return _table(title, stack.shown, row_names, rows)


def _ranked_predictions(
    predictions: LayerPredictions, number: int, rank: int
) -> list[tuple[str, float]]:
    """Return the prediction of a rank at each position, and its probability."""
    ranked = []
    for place, words in enumerate(predictions.tokens[number]):
        probability = float(predictions.probabilities[number, place, rank])
        label = readable(words[rank])
        if predictions.name == "replaced":
            # The head has one output, which needs no name.
            label = f"{probability:.3f}"
        ranked.append((label, probability))
    return ranked


def _hidden_state(look: Look, layer: int | None, layers: Sequence[int]) -> int:
    """Return the number of a hidden state, by default the last one."""
    if layer is None:
        return layers[-1]
    if layer not in layers:
        raise UsageError(
            f"{look.model} has no layer {layer}", f"its layers are {layers[0]} to {layers[-1]}"
        )
    return layer


def matrix_panel(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Floats,
    shade: Callable[[float], float],
) -> Panel:
    """Return a matrix with its tokens at the left and, turned by a right angle, above."""
    row_labels = [shorten_name(name, MAX_TOKEN) for name in rows]
    column_labels = [shorten_name(name, MAX_TOKEN) for name in columns]
    left = CHARACTER * max(map(text_width, row_labels)) + 8
    top = CHARACTER * max(map(text_width, column_labels)) + 8
    width = CELL * len(columns)
    height = CELL * len(rows)
    elements = []
    for row, label in enumerate(row_labels):
        down = top + CELL * (row + 0.5) + 4
        elements.append(
            f'<text x="{left - 6:.1f}" y="{down:.1f}" class="token end">{html_text(label)}</text>'
        )
    for column, label in enumerate(column_labels):
        across = left + CELL * (column + 0.5) + 4
        elements.append(
            f'<text transform="translate({across:.1f} {top - 6:.1f}) rotate(-90)" class="token">'
            f"{html_text(label)}</text>"
        )
    for (row, column), value in np.ndenumerate(values):
        opacity = min(shade(float(value)), 1.0)
        names = html_text(f"{rows[row]} \N{RIGHTWARDS ARROW} {columns[column]}: {value:.4f}")
        elements.append(
            f'<rect x="{left + CELL * column:.1f}" y="{top + CELL * row:.1f}" width="{CELL}" '
            f'height="{CELL}" fill-opacity="{opacity:.3f}" class="heat">'
            f"<title>{names}</title></rect>"
        )
    elements.append(
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width}" height="{height}" class="frame"/>'
    )
    return Panel(title, left + width, top + height, elements)


def _table(
    title: str,
    columns: Sequence[str],
    row_names: Sequence[str],
    rows: Sequence[Sequence[tuple[str, float]]],
) -> Panel:
    """Return a table of tokens and their probabilities; wide ones continue in a block below."""
    left = CHARACTER * max(map(text_width, row_names)) + 10
    labels = [shorten_name(name, MAX_PREDICTION) for name in columns]
    widths = []
    for column, label in enumerate(labels):
        longest = text_width(label)
        for row in rows:
            token, _ = row[column]
            longest = max(longest, text_width(shorten_name(token, MAX_PREDICTION)))
        widths.append(max(MIN_COLUMN, CHARACTER * longest + 8))
    elements: list[str] = []
    total_width = left
    top = 0.0
    across = left
    for column, width in enumerate(widths):
        if column == 0 or across + width > MAX_WIDTH:
            if column > 0:
                top += CELL * (len(rows) + 1) + GAP
            across = left
            elements += _row_headings(row_names, left, top)
        centre = across + width / 2
        elements.append(
            f'<text x="{centre:.1f}" y="{top + 14:.1f}" class="token middle">'
            f"{html_text(labels[column])}</text>"
        )
        for number, row in enumerate(rows):
            down = top + CELL * (number + 1)
            elements.append(_prediction_cell(*row[column], across, down, width))
        across += width
        total_width = max(total_width, across)
    return Panel(title, total_width, top + CELL * (len(rows) + 1), elements)


def _row_headings(names: Sequence[str], left: float, top: float) -> Iterator[str]:
    for number, name in enumerate(names):
        down = top + CELL * (number + 1) + 14
        yield f'<text x="{left - 8:.1f}" y="{down:.1f}" class="token end">{html_text(name)}</text>'


def _prediction_cell(
    token: str, probability: float, across: float, down: float, width: float
) -> str:
    classes = "token middle light" if probability > STRONG else "token middle"
    title = html_text(f"{token}: {probability:.4f}")
    label = html_text(shorten_name(token, MAX_PREDICTION))
    return (
        f'<rect x="{across + 1:.1f}" y="{down + 1:.1f}" width="{width - 2:.1f}" '
        f'height="{CELL - 2}" fill-opacity="{probability:.3f}" class="heat">'
        f"<title>{title}</title></rect>"
        f'<text x="{across + width / 2:.1f}" y="{down + 14:.1f}" class="{classes}">{label}</text>'
    )


def text_width(text: str) -> int:
    """Return the width of text in characters; those of East Asian scripts are twice as wide."""
    width = 0
    for character in text:
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return width
