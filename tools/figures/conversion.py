"""The flow of ``zoo convert``."""

from tools.figures.drawing import Canvas, Colour

ABOVE: tuple[tuple[str, tuple[str, ...], Colour], ...] = (
    (
        "checkpoint",
        ("config.json, tokenizer,", "weights: safetensors, .bin,", "TensorFlow, HDF5"),
        "plain",
    ),
    (
        "converter",
        ("knows bytes: reads names,", "shapes and dtypes; runs no", "code of the file"),
        "blue",
    ),
    (
        "family",
        ("knows names: rules map", "each tensor and each key", "of the configuration"),
        "violet",
    ),
    ("mapping", ("every tensor is mapped,", "tied, or dropped for a", "stated reason"), "amber"),
)
BELOW: tuple[tuple[str, tuple[str, ...], Colour], ...] = (
    ("model", ("config.json, zoo.json,", "tokenizer.json,", "model.safetensors"), "green"),
    (
        "read back",
        ("the result is opened,", "digests are recorded,", "then it is renamed"),
        "plain",
    ),
    (
        "round trip",
        ("the source is rebuilt from", "the result and compared", "bit for bit"),
        "plain",
    ),
    ("write", ("one tensor at a time,", "into a staging directory", "next to the target"), "plain"),
)
LEFT = 16
STEP = 187
WIDE = 167
TALL = 92


def draw() -> str:
    """Return the figure."""
    canvas = Canvas()
    for top, row in ((16, ABOVE), (172, BELOW)):
        for place, (title, lines, colour) in enumerate(row):
            x = LEFT + STEP * place
            canvas.box(x, top, WIDE, TALL, colour)
            canvas.text(x + 12, top + 24, title, "strong")
            for number, line in enumerate(lines):
                canvas.text(x + 12, top + 45 + 16 * number, line, "small")
    gap = STEP - WIDE
    for place in range(3):
        right = LEFT + STEP * place + WIDE
        canvas.line((right + 2, 62), (right + gap - 2, 62), arrow=True)
        canvas.line((right + gap - 2, 218), (right + 2, 218), arrow=True)
    middle = LEFT + STEP * 3 + WIDE / 2
    canvas.line((middle, 110), (middle, 170), arrow=True)
    # what fails ends in the same box
    canvas.box(190, 126, 380, 28, "red", 14)
    canvas.text(
        380,
        144.5,
        "left over, missing or not equal: exit code 3, nothing is written",
        "small middle",
    )
    canvas.line((middle - 30, 110), (middle - 30, 140), (572, 140), style="dashed", arrow=True)
    canvas.line(
        (LEFT + STEP * 2 + 60, 170), (LEFT + STEP * 2 + 60, 156), style="dashed", arrow=True
    )
    canvas.line((LEFT + STEP + 60, 170), (LEFT + STEP + 60, 156), style="dashed", arrow=True)
    steps = " to ".join(title for title, _, _ in (*ABOVE, *reversed(BELOW)))
    return canvas.svg(280, f"The flow of a conversion: {steps}; what fails is not written")
