"""The page of ``zoo look``: one HTML file with its data, styles and script."""

import base64
from typing import Any

import numpy as np

from zoo.inspection.inspection import (
    Floats,
    Look,
    StackView,
    cosines,
    readable,
)
from zoo.io.page_text import readable_values
from zoo.report import html


def render(look: Look) -> str:
    """Return the page as HTML."""
    first = look.texts[0].stacks[0]
    layers = sum(name.startswith("layer") for name in first.layers)  # a mix is not one
    width = first.hidden[-1].shape[-1]
    about = f"{look.family} with head {look.head}, {layers} layers of width {width}"
    # the last parts of a path say which model it is
    title = "/".join(look.model.rstrip("/").split("/")[-2:])
    return html.render("look.html", title=title, about=about, data=readable_values(page_data(look)))


def page_data(look: Look) -> dict[str, Any]:
    """Return what the script of the page reads."""
    # Attention weights and cosines have 8 bits each, as base64, so that two texts of 64 tokens and
    # a model with 24 layers of 16 heads fit into 5 MB. The numbers themselves are in
    # ``Look.to_json``.
    return {
        "texts": [
            {
                "text": view.text,
                "truncated": view.truncated,
                "masked": view.masked,
                "stacks": [_stack(stack) for stack in view.stacks],
            }
            for view in look.texts
        ],
        "compared": _compared(look),
        "mixes": [{"weights": mix.weights, "gamma": mix.gamma} for mix in look.mixes],
    }


def _compared(look: Look) -> list[dict[str, Any]]:
    """Return what the view of similarity compares: words, and tokens where they are others."""
    tokens = {
        "name": "tokens",
        "texts": [view.stacks[0].shown for view in look.texts],
        "similarity": _between(look.similarities(), [len(v.stacks[0].shown) for v in look.texts]),
        "across": [_across_layers(view.stacks[0].hidden) for view in look.texts],
    }
    if not any(len(word.tokens) > 1 for view in look.texts for word in view.words):
        return [tokens]
    words = {
        "name": "words",
        "texts": [[word.text for word in view.words] for view in look.texts],
        "similarity": _between(look.word_similarities(), [len(v.words) for v in look.texts]),
        "across": [_across_layers(view.word_vectors()) for view in look.texts],
    }
    return [words, tokens]


def _between(layers: list[Floats], counts: list[int]) -> list[str]:
    """Return cosines between the first and the last text, which may be the same one."""
    return [encode_cosines(layer[: counts[0], -counts[-1] :]) for layer in layers]


def _stack(stack: StackView) -> dict[str, Any]:
    return {
        "name": stack.name,
        "tokens": stack.shown,
        "layers": stack.layers,
        "attention": [
            {
                "name": maps.name,
                "layers": maps.layers,
                **dict(zip(("heads", "queries", "keys"), maps.values.shape[1:], strict=True)),
                "values": [encode_probabilities(layer) for layer in maps.values],
            }
            for maps in stack.attention
        ],
        "predictions": [
            {
                "name": found.name,
                "layers": found.layers,
                "tokens": [[[readable(t) for t in best] for best in row] for row in found.tokens],
                "probabilities": found.probabilities.round(4).tolist(),
            }
            for found in stack.predictions
        ],
    }


def _across_layers(hidden: list[Floats]) -> str:
    """Return the cosines of a token's vectors at pairs of layers, (tokens, layers, layers)."""
    # Empty where layers differ in width.
    if len({state.shape for state in hidden}) > 1:
        return ""
    return encode_cosines(np.stack([cosines(states) for states in np.stack(hidden, axis=1)]))


def encode_probabilities(values: Floats) -> str:
    """Return probabilities as bytes in base64: a byte b stands for (b / 255)²."""
    # most weights of a head over 64 tokens are small: their roots lose less by rounding
    return _base64(np.rint(np.sqrt(np.clip(values, 0, 1)) * 255).astype(np.uint8))


def encode_cosines(values: Floats) -> str:
    """Return cosines as bytes in base64: a byte b stands for (b - 127) / 127."""
    return _base64((np.rint(np.clip(values, -1, 1) * 127) + 127).astype(np.uint8))


def _base64(array: "np.ndarray[Any, np.dtype[np.uint8]]") -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
