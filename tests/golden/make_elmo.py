"""Create the golden files of ELMo, which the reference library does not implement.

    PYTHONPATH=. python tests/golden/make_elmo.py

The expected outputs are computed by ``tests/families/elmo_numpy.py``, which shares no code with the
family; ``benchmarks/elmo.py`` compares both with the original TensorFlow code.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.families import elmo_numpy

OPTIONS: dict[str, Any] = {
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 3},
        "filters": [[1, 3], [2, 4], [3, 5]],
        "max_characters_per_token": 7,
        "n_characters": 262,
        "n_highway": 2,
    },
    "lstm": {
        "cell_clip": 0.8,
        "dim": 9,
        "n_layers": 2,
        "proj_clip": 0.6,
        "projection_dim": 5,
        "use_skip_connections": True,
    },
}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], bool]] = {
    # head, changes of char_cnn, changes of lstm, layer weights of the mix
    "none": ("none", {}, {}, False),
    "none-mixed": ("none", {}, {"n_layers": 1}, True),
    "none-tanh": ("none", {"activation": "tanh", "n_highway": 0}, {"n_layers": 3}, True),
    "none-unclipped": ("none", {}, {"cell_clip": None, "proj_clip": None}, False),
    "none-plain": ("none", {}, {"use_skip_connections": False, "dim": 5}, False),
    "none-unprojected": ("none", {"filters": [[2, 5]]}, {"projection_dim": 5}, False),
    "pretraining": ("bidirectional-lm", {}, {}, False),
}
WORDS = 11


def shapes(options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    cnn, lstm = options["char_cnn"], options["lstm"]
    size, total = cnn["embedding"]["dim"], sum(count for _, count in cnn["filters"])
    inner, outer = lstm["dim"], lstm["projection_dim"]
    sizes: dict[str, tuple[int, ...]] = {"char_embed": (261, size)}
    for n, (width, count) in enumerate(cnn["filters"]):
        sizes |= {f"CNN/W_cnn_{n}": (1, width, size, count), f"CNN/b_cnn_{n}": (count,)}
    for k in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            sizes |= {
                f"CNN_high_{k}/W_{part}": (total, total),
                f"CNN_high_{k}/b_{part}": (total,),
            }
    if total != outer:
        sizes |= {"CNN_proj/W_proj": (total, outer), "CNN_proj/b_proj": (outer,)}
    for way in (0, 1):
        for layer in range(lstm["n_layers"]):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            sizes |= {f"{cell}/W_0": (2 * outer, 4 * inner), f"{cell}/B": (4 * inner,)}
            sizes |= {f"{cell}/W_P_0": (inner, outer)} if outer < inner else {}
    return sizes


def make(name: str, path: Path) -> None:
    head, cnn, lstm, mixed = CASES[name]
    options = {"char_cnn": OPTIONS["char_cnn"] | cnn, "lstm": OPTIONS["lstm"] | lstm}
    wanted = shapes(options)
    if head == "bidirectional-lm":
        options["n_tokens_vocab"] = WORDS
        width = options["lstm"]["projection_dim"]
        wanted |= {"softmax/W": (WORDS, width), "softmax/b": (WORDS,)}
    if mixed:
        wanted |= {"ELMo_W": (options["lstm"]["n_layers"] + 1,), "ELMo_gamma": (1,)}
    random = np.random.default_rng(len(name))
    weights = {n: random.normal(0, 0.7, s).astype(np.float32) for n, s in wanted.items()}
    characters = options["char_cnn"]["max_characters_per_token"]
    lengths = (6, 3, 1)
    ids = random.integers(1, 262, (len(lengths), max(lengths), characters))
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    ids[~mask] = 0
    exact = {n: array.astype(np.float64) for n, array in weights.items()}
    rows = [
        elmo_numpy.outputs(options, exact, row[real]) for row, real in zip(ids, mask, strict=True)
    ]
    tensors: dict[str, Any] = {f"weights/{n}": array for n, array in weights.items()}
    tensors |= {"inputs/character_ids": ids, "inputs/attention_mask": mask.astype(np.int64)}
    for output in rows[0]:
        stacked = np.zeros((*mask.shape, rows[0][output].shape[-1]))
        for place, row in zip(stacked, rows, strict=True):
            place[: len(row[output])] = row[output]
        if head == "bidirectional-lm":  # hidden states of padding are zero
            stacked[~mask] = exact["softmax/b"]
        tensors[f"outputs/{output}"] = stacked
    facts = {"head": head, "config": json.dumps(options, sort_keys=True)}
    save_file(tensors, path, metadata=facts | {"made_with": f"numpy {np.__version__}"})
    path.chmod(0o644)


def main() -> None:
    folder = Path(__file__).parent / "elmo"
    folder.mkdir(exist_ok=True)
    for name in CASES:
        make(name, folder / f"{name}.safetensors")


if __name__ == "__main__":
    main()
