"""Reference implementation of ELMo in numpy, one word and one sentence at a time.

It follows the paper and the released TensorFlow code, without batches, masks or rearranged weights,
on the tensors of the checkpoint file. It shares no code with the family.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = Mapping[str, Array]
Memory = dict[tuple[int, int], tuple[Array, Array]]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def word_vector(options: Mapping[str, Any], weights: Weights, ids: Sequence[int]) -> Array:
    cnn = options["char_cnn"]
    table = np.concatenate([np.zeros_like(weights["char_embed"][:1]), weights["char_embed"]])
    letters = table[list(ids)]  # (characters, size)
    best = []
    for n, (width, count) in enumerate(cnn["filters"]):
        kernel, bias = weights[f"CNN/W_cnn_{n}"][0], weights[f"CNN/b_cnn_{n}"]
        scores = []
        for start in range(len(letters) - width + 1):
            total = np.zeros(count)
            for k in range(width):
                total += letters[start + k] @ kernel[k]
            activated = total + bias
            activated = (
                np.maximum(activated, 0) if cnn["activation"] == "relu" else np.tanh(activated)
            )
            scores.append(activated)
        best.append(np.max(scores, axis=0))
    x = np.concatenate(best)
    for k in range(cnn.get("n_highway") or 0):
        group = f"CNN_high_{k}"
        gate = sigmoid(x @ weights[f"{group}/W_carry"] + weights[f"{group}/b_carry"])
        new = np.maximum(x @ weights[f"{group}/W_transform"] + weights[f"{group}/b_transform"], 0)
        x = gate * new + (1 - gate) * x
    if "CNN_proj/W_proj" in weights:
        x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return x


def lstm(
    options: Mapping[str, Any],
    weights: Weights,
    words: Sequence[Array],
    place: tuple[int, int],
    memory: Memory,
) -> list[Array]:
    way, layer = place
    cell_name = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    settings = options["lstm"]
    kernel, bias = weights[f"{cell_name}/W_0"], weights[f"{cell_name}/B"]
    projection = weights.get(f"{cell_name}/W_P_0")
    start = np.zeros(settings["projection_dim"]), np.zeros(settings["dim"])
    h, c = memory.get(place, start)
    states = []
    for x in words:
        i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
        c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)
        if settings.get("cell_clip"):
            c = np.clip(c, -settings["cell_clip"], settings["cell_clip"])
        h = sigmoid(o) * np.tanh(c)
        if projection is not None:
            h = h @ projection
            if settings.get("proj_clip"):
                h = np.clip(h, -settings["proj_clip"], settings["proj_clip"])
        skip = settings.get("use_skip_connections") and layer > 0
        states.append(h + x if skip else h)
    memory[place] = (h, c)
    return states


def layers(
    options: Mapping[str, Any],
    weights: Weights,
    sentence: Sequence[Sequence[int]],
    memory: Memory | None = None,
) -> list[Array]:
    """Return the layers of a sentence, each of shape (words, 2 projection_dim).

    Args:
        options: ``options.json``.
        weights: the file's tensors, float64.
        sentence: character ids of each word.
        memory: recurrent state after the previous sentence; updated in place.
    """
    memory = {} if memory is None else memory
    words = [word_vector(options, weights, ids) for ids in sentence]
    ways = [[words], [words]]
    for way in (0, 1):
        for layer in range(options["lstm"]["n_layers"]):
            below = ways[way][-1]
            if way == 0:
                above = lstm(options, weights, below, (way, layer), memory)
            else:
                above = lstm(options, weights, below[::-1], (way, layer), memory)[::-1]
            ways[way].append(above)
    width = options["lstm"]["projection_dim"]
    return [
        np.array([np.concatenate(both) for both in zip(*pair, strict=True)]).reshape(-1, 2 * width)
        for pair in zip(*ways, strict=True)
    ]


def outputs(
    options: Mapping[str, Any], weights: Weights, sentence: Sequence[Sequence[int]]
) -> dict[str, Array]:
    """Return the outputs of the head of the weights for a sentence."""
    states = layers(options, weights, sentence)
    if "softmax/W" in weights:
        width = options["lstm"]["projection_dim"]
        table, bias = weights["softmax/W"], weights["softmax/b"]
        return {
            "forward_logits": states[-1][:, :width] @ table.T + bias,
            "backward_logits": states[-1][:, width:] @ table.T + bias,
        }
    if "ELMo_W" not in weights:
        return {"last_hidden_state": np.mean(states, axis=0)}
    shares = np.exp(weights["ELMo_W"]) / np.exp(weights["ELMo_W"]).sum()
    mixed = sum(share * layer for share, layer in zip(shares, states, strict=True))
    return {"last_hidden_state": np.asarray(weights["ELMo_gamma"] * mixed)}
