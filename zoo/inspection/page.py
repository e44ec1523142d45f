"""The page of ``zoo look``: one HTML file with its data, styles and script."""

import base64
from typing import Any

import numpy as np

from zoo.families.heads import with_head
from zoo.inspection.inspection import (
    AttentionMaps,
    Floats,
    LayerPredictions,
    Look,
    StackView,
    TextView,
    cosines,
    readable,
)
from zoo.io.page_text import readable_values
from zoo.report import html


def render(look: Look) -> str:
    """Return the page as HTML; several models are next to each other, each in a frame."""
    if not look.compared:
        return _render_model(look)
    models = [look, *look.compared]
    frames = [(_title(model), _render_model(model)) for model in models]
    title = " \N{MIDDLE DOT} ".join(name for name, _ in frames)
    texts = [view.text for view in look.texts]
    return html.render("compare.html", title=title, texts=texts, frames=frames)


def _title(look: Look) -> str:
    """Return the last parts of a path, which say which model it is."""
    return "/".join(look.model.rstrip("/").split("/")[-2:])


def _render_model(look: Look) -> str:
    first = look.texts[0].stacks[0]
    # A mix of layers is not a layer.
    layer_names = [name for name in first.layers if name.startswith("layer")]
    width = first.hidden[-1].shape[-1]
    about = f"{with_head(look.family, look.head)}, {len(layer_names)} layers of width {width}"
    data = readable_values(page_data(look))
    return html.render("look.html", title=_title(look), about=about, data=data)


def page_data(look: Look) -> dict[str, Any]:
    """Return what the script of the page reads.

    Attention weights and cosines have 8 bits each, as base64, so that two texts of 64 tokens and
    a model with 24 layers of 16 heads fit into 5 MB. ``Look.to_json`` returns the exact numbers.
    """
    return {
        "texts": [_text(view) for view in look.texts],
        "compared": _comparisons(look),
        "mixes": [{"weights": mix.weights, "gamma": mix.gamma} for mix in look.mixes],
    }


def _comparisons(look: Look) -> list[dict[str, Any]]:
    """Return what the view of similarity compares: tokens, and words if they differ from these."""
    token_texts = [view.stacks[0].shown for view in look.texts]
    tokens = {
        "name": "tokens",
        "texts": token_texts,
        "similarity": _between_texts(look.similarities(), token_texts),
        "across": [_across_layers(view.stacks[0].hidden) for view in look.texts],
    }
    word_texts = []
    is_split = False
    for view in look.texts:
        word_texts.append([word.text for word in view.words])
        is_split = is_split or any(len(word.tokens) > 1 for word in view.words)
    if not is_split:
        return [tokens]
    words = {
        "name": "words",
        "texts": word_texts,
        "similarity": _between_texts(look.word_similarities(), word_texts),
        "across": [_across_layers(view.word_vectors()) for view in look.texts],
    }
    return [words, tokens]


def _between_texts(layers: list[Floats], texts: list[list[str]]) -> list[str]:
    """Return cosines between the first and the last text, which may be the same one."""
    first_length = len(texts[0])
    last_length = len(texts[-1])
    return [encode_cosines(layer[:first_length, -last_length:]) for layer in layers]


def _text(view: TextView) -> dict[str, Any]:
    return {
        "text": view.text,
        "truncated": view.truncated,
        "masked": view.masked,
        "stacks": [_stack(stack) for stack in view.stacks],
    }


def _stack(stack: StackView) -> dict[str, Any]:
    return {
        "name": stack.name,
        "tokens": stack.shown,
        "layers": stack.layers,
        "attention": [_attention(maps) for maps in stack.attention],
        "predictions": [_predictions(predictions) for predictions in stack.predictions],
    }


def _attention(maps: AttentionMaps) -> dict[str, Any]:
    _, heads, queries, keys = maps.values.shape
    return {
        "name": maps.name,
        "layers": maps.layers,
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "values": [encode_probabilities(layer) for layer in maps.values],
    }


def _predictions(predictions: LayerPredictions) -> dict[str, Any]:
    tokens = []
    for layer in predictions.tokens:
        tokens.append([list(map(readable, best)) for best in layer])
    return {
        "name": predictions.name,
        "layers": predictions.layers,
        "tokens": tokens,
        "probabilities": predictions.probabilities.round(4).tolist(),
    }


def _across_layers(hidden: list[Floats]) -> str:
    """Return the cosines of a token's vectors at pairs of layers, (tokens, layers, layers).

    The text is empty if layers differ in width.
    """
    if len({state.shape for state in hidden}) > 1:
        return ""
    matrices = [cosines(states) for states in np.stack(hidden, axis=1)]
    return encode_cosines(np.stack(matrices))


def encode_probabilities(values: Floats) -> str:
    """Return probabilities as bytes in base64: a byte b stands for (b / 255)²."""
    # Most weights of a head over 64 tokens are small: their roots lose less by rounding.
    return _base64(np.rint(np.sqrt(np.clip(values, 0, 1)) * 255).astype(np.uint8))


def encode_cosines(values: Floats) -> str:
    """Return cosines as bytes in base64: a byte b stands for (b - 127) / 127."""
    return _base64((np.rint(np.clip(values, -1, 1) * 127) + 127).astype(np.uint8))


def _base64(array: "np.ndarray[Any, np.dtype[np.uint8]]") -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
