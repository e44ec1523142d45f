"""What the recipes of distillation compare, drawn from their declarations."""

from collections import Counter
from typing import Any

from tools.figures.drawing import Canvas, Colour
from zoo.distillation.layer_maps import resolve_layers
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
TEACHER, STUDENT = 12, 6  # layers
ACROSS, WIDE, TALL = 4, 182, 276
LAYER, GAP, BOX = 11.0, 3.0, 42.0  # height of a layer, distance of layers, width
COLOURS: dict[str, Colour] = {
    "logits": "blue",
    "hidden states": "green",
    "attention": "amber",
    "relations": "violet",
    "replacement": "red",
    "sentence vector": "teal",
}
KINDS = {
    "kl": "logits",
    "logits-mse": "logits",
    "hidden-mse": "hidden states",
    "hidden-cosine": "hidden states",
    "first-token-mse": "hidden states",
    "attention-kl": "attention",
    "attention-mse": "attention",
    "relations": "relations",
    "embeddings": "sentence vector",
}


def draw() -> str:
    """Return the figure."""
    canvas = Canvas()
    rows = -(-len(RECIPES) // ACROSS)
    for place, name in enumerate(RECIPES):
        _panel(canvas, name, 16 + WIDE * (place % ACROSS), 28 + TALL * (place // ACROSS))
    x, y = 16.0, 28 + TALL * rows + 4
    for name, colour in COLOURS.items():
        canvas.line((x, y - 4), (x + 18, y - 4), style=f"{colour} thick")
        canvas.text(x + 23, y, name, "small")
        x += 36 + 6 * len(name)
    canvas.line((x, y - 4), (x + 18, y - 4), style="dashed")
    canvas.text(x + 23, y, "initial weights", "small")
    names = ", ".join(RECIPES)
    return canvas.svg(y + 14, f"Which layers of teacher and student are compared by {names}")


def _panel(canvas: Canvas, name: str, x: float, y: float) -> None:
    """Draw the layers of teacher and student, and what is compared."""
    recipe = any_recipe(name)
    canvas.text(x, y, name, "title")
    weight = recipe.objective_weight
    own = (
        f"{weight:g} \N{MULTIPLICATION SIGN} loss of the labels"
        if weight
        else "no loss of the labels"
    )
    canvas.text(x, y + 17, own, "muted")
    top = y + 28
    height = (TEACHER + 2) * (LAYER + GAP) - GAP
    student_gap = (height - (STUDENT + 2) * LAYER) / (STUDENT + 1)
    left, right = x + BOX, x + WIDE - 30 - BOX

    def centre(model: str, layer: int) -> float:
        """Return the height of a layer, from 0; -1 for embeddings."""
        gap = GAP if model == "teacher" else student_gap
        return top + height - (layer + 2) * LAYER - (layer + 1) * gap + LAYER / 2

    for model, layers, column in (("teacher", TEACHER, x), ("student", STUDENT, right)):
        for layer in range(-1, layers + 1):
            colour = "plain" if 0 <= layer < layers else "line"
            canvas.box(column, centre(model, layer) - LAYER / 2, BOX, LAYER, colour, 3)
        canvas.text(column + BOX / 2, top + height + 15, model, "muted middle")
    if recipe.init_layers is not None:
        for own_layer, layer in resolve_layers(recipe.init_layers, STUDENT, TEACHER):
            ends = (left + 2, centre("teacher", layer)), (right - 2, centre("student", own_layer))
            canvas.line(*ends, style="dashed")
    seen: Counter[tuple[int, int]] = Counter()
    for kind, *pair in compared(recipe):
        shift = 3.5 * seen[pair[0], pair[1]]  # lines between the same layers are next to each other
        seen[pair[0], pair[1]] += 1
        ends = (
            (left + 2, centre("teacher", pair[1]) + shift),
            (right - 2, centre("student", pair[0]) + shift),
        )
        canvas.line(*ends, style=f"{COLOURS[kind]} thick")


def compared(recipe: DistillationRecipe) -> list[tuple[str, int, int]]:
    """Return what is compared, with the student's and the teacher's layer."""
    if recipe.replacement is not None:
        group = TEACHER // STUDENT
        return [("replacement", layer // group, layer) for layer in range(TEACHER)]
    found = []
    for term in parse_terms(recipe.terms):
        kind = KINDS[term.loss.name]
        settings: Any = term.settings
        if kind in ("logits", "sentence vector"):
            found.append((kind, STUDENT, TEACHER))
            continue
        if getattr(settings, "embeddings", False):
            found.append((kind, -1, -1))
        found += [(kind, *pair) for pair in resolve_layers(settings.layers, STUDENT, TEACHER)]
    return found
