"""What the recipes of distillation compare, drawn from their declarations."""

from collections import Counter
from typing import Any

from tools.figures.drawing import Canvas, Colour
from zoo.distillation.layer_maps import resolve_layers
from zoo.distillation.losses.base import (
    AttentionLoss,
    DistillationLoss,
    HiddenLoss,
    LayerLoss,
    LogitsLoss,
    TextEmbeddingLoss,
)
from zoo.distillation.recipes import any_recipe
from zoo.distillation.term_tables import parse_terms
from zoo.families.distillation import DistillationRecipe

RECIPES = (
    "logits",
    "distilbert",
    "tinybert",
    "minilm",
    "minilmv2",
    "patient",
    "theseus",
    "embeddings",
)
TEACHER_LAYERS = 12
STUDENT_LAYERS = 6
PANELS_PER_ROW = 4
PANEL_WIDTH = 182
PANEL_HEIGHT = 276
LAYER_HEIGHT = 11.0
LAYER_WIDTH = 42.0
GAP = 3.0  # Between the teacher's layers.
COLOURS: dict[str, Colour] = {
    "logits": "blue",
    "hidden states": "green",
    "attention": "amber",
    "relations": "violet",
    "replacement": "red",
    "sentence vector": "teal",
}
# What a loss of attention captures -> what it compares.
ATTENTION = {"attention_scores": "attention", "queries_keys_values": "relations"}


def draw() -> str:
    """Return the figure."""
    canvas = Canvas()
    rows = -(-len(RECIPES) // PANELS_PER_ROW)
    for number, name in enumerate(RECIPES):
        row, column = divmod(number, PANELS_PER_ROW)
        _panel(canvas, name, 16 + PANEL_WIDTH * column, 28 + PANEL_HEIGHT * row)
    y = 28 + PANEL_HEIGHT * rows + 4
    _legend(canvas, 16.0, y)
    names = ", ".join(RECIPES)
    return canvas.svg(y + 14, f"Which layers of teacher and student are compared by {names}")


def _legend(canvas: Canvas, x: float, y: float) -> None:
    """Draw the meaning of the colours."""
    for content, colour in COLOURS.items():
        canvas.line((x, y - 4), (x + 18, y - 4), style=f"{colour} thick")
        canvas.text(x + 23, y, content, "small")
        x += 36 + 6 * len(content)
    canvas.line((x, y - 4), (x + 18, y - 4), style="dashed")
    canvas.text(x + 23, y, "initial weights", "small")


def _panel(canvas: Canvas, name: str, x: float, y: float) -> None:
    """Draw the layers of teacher and student, and what is compared."""
    recipe = any_recipe(name)
    canvas.text(x, y, name, "title")
    canvas.text(x, y + 17, _label_loss(recipe), "muted")
    top = y + 28
    height = (TEACHER_LAYERS + 2) * (LAYER_HEIGHT + GAP) - GAP
    student_gap = (height - (STUDENT_LAYERS + 2) * LAYER_HEIGHT) / (STUDENT_LAYERS + 1)
    student_x = x + PANEL_WIDTH - 30 - LAYER_WIDTH

    def centre(model: str, layer: int) -> float:
        """Return the height of a layer, from 0; -1 for embeddings."""
        gap = GAP if model == "teacher" else student_gap
        bottom = top + height - (layer + 2) * LAYER_HEIGHT - (layer + 1) * gap
        return bottom + LAYER_HEIGHT / 2

    def line(teacher_layer: int, student_layer: int, shift: float, style: str) -> None:
        """Draw a line between two layers."""
        start = (x + LAYER_WIDTH + 2, centre("teacher", teacher_layer) + shift)
        end = (student_x - 2, centre("student", student_layer) + shift)
        canvas.line(start, end, style=style)

    models = (("teacher", TEACHER_LAYERS, x), ("student", STUDENT_LAYERS, student_x))
    for model, layers, column in models:
        for layer in range(-1, layers + 1):
            colour = "plain" if 0 <= layer < layers else "line"
            layer_top = centre(model, layer) - LAYER_HEIGHT / 2
            canvas.box(column, layer_top, LAYER_WIDTH, LAYER_HEIGHT, colour, 3)
        canvas.text(column + LAYER_WIDTH / 2, top + height + 15, model, "muted middle")
    if recipe.init_layers is not None:
        pairs = resolve_layers(recipe.init_layers, STUDENT_LAYERS, TEACHER_LAYERS)
        for student_layer, teacher_layer in pairs:
            line(teacher_layer, student_layer, 0.0, "dashed")
    drawn: Counter[tuple[int, int]] = Counter()
    for content, student_layer, teacher_layer in compared(recipe):
        pair = (student_layer, teacher_layer)
        shift = 3.5 * drawn[pair]  # Lines between the same layers are next to each other.
        drawn[pair] += 1
        line(teacher_layer, student_layer, shift, f"{COLOURS[content]} thick")


def _label_loss(recipe: DistillationRecipe) -> str:
    """Return the weight of the loss of the labels, in words."""
    if not recipe.objective_weight:
        return "no loss of the labels"
    return f"{recipe.objective_weight:g} \N{MULTIPLICATION SIGN} loss of the labels"


def compared(recipe: DistillationRecipe) -> list[tuple[str, int, int]]:
    """Return what is compared, with the student's and the teacher's layer."""
    if recipe.replacement is not None:
        group = TEACHER_LAYERS // STUDENT_LAYERS
        return [("replacement", layer // group, layer) for layer in range(TEACHER_LAYERS)]
    comparisons = []
    for term in parse_terms(recipe.terms):
        content = content_of_loss(term.loss)
        if not issubclass(term.loss, LayerLoss):
            comparisons.append((content, STUDENT_LAYERS, TEACHER_LAYERS))
            continue
        settings: Any = term.settings
        if getattr(settings, "embeddings", False):
            comparisons.append((content, -1, -1))
        for student, teacher in resolve_layers(settings.layers, STUDENT_LAYERS, TEACHER_LAYERS):
            comparisons.append((content, student, teacher))
    return comparisons


def content_of_loss(loss: type[DistillationLoss]) -> str:
    """Return what a loss compares, as its base class declares it."""
    if issubclass(loss, AttentionLoss):
        return ATTENTION[loss.captures]
    if issubclass(loss, LogitsLoss):
        return "logits"
    if issubclass(loss, HiddenLoss):
        return "hidden states"
    if issubclass(loss, TextEmbeddingLoss):
        return "sentence vector"
    raise ValueError(f"the figure has no colour for {loss.name}")
