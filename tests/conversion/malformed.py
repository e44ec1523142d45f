"""Malformed configurations, tried in a process with limits.

``python -m tests.conversion.malformed FOLDER CASES`` tries ``CASES`` random configurations of each
family (0 for all), and prints one line for each that raises an undocumented error.
"""

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zoo.conversion.convert import convert
from zoo.errors import ZooError
from zoo.families.base import Family
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.formats import TensorInfo
from zoo.io.tensors.safetensors import header_bytes
from zoo.plugins import all_families

WRONG: tuple[Any, ...] = (
    *(None, "", "x", "1e5", "\u0000", "é" * 300, True, False),
    *(-1, 0, 1, 2, 0.5, 1e308, 10**9, 10**10, 10**50, -(10**10)),
    *([], [1], ["a"], [None], ["BertModel", 3], [[]], [[1, 2]]),
    *({}, {"a": 1}, {"0": "a"}, {"0": None}, {"x": "y"}, {"a": {"b": [1]}}),
)
LITERALS = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000)
KEYS = ("num_labels", "id2label", "label2id", "problem_type", "architectures", "auto_map")
MORE = ("quantization_config", "hidden_act", "rope_scaling", "pooling", "dtype", "torch_dtype")
TEXTS = ("", "[]", "1", "null", '"x"', "{", '{"a":' * 1000, "[" * 100_000, "{}", "\xff")


def texts(hub: dict[str, Any]) -> Iterator[str]:
    """Yield configurations with one fault."""
    yield from TEXTS
    paths: list[tuple[str, ...]] = [(key,) for key in dict.fromkeys([*hub, *KEYS, *MORE])]
    paths += [(key, inner) for key in hub if isinstance(hub[key], dict) for inner in hub[key]]
    for path in paths:
        for value in WRONG:
            yield json.dumps(changed(hub, path, value))
        text = json.dumps(changed(hub, path, "HERE"))
        yield from (text.replace('"HERE"', literal) for literal in LITERALS)


def changed(hub: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    if len(path) > 1:
        value = changed(hub[path[0]], path[1:], value)
    return {**hub, path[0]: value}


def write_weights(path: Path, family: Family, config: Any, head: str) -> None:
    rules = family.weights(config, head)
    tensors = {
        rules.written(name): TensorInfo("F32", shape)
        for entry in rules.entries()
        for name, shape in zip(entry.sources, entry.source_shapes, strict=True)
    }
    header = header_bytes(tensors, {})
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(info.nbytes for info in tensors.values()))


def bugs(folder: Path, family: Family, cases: int) -> Iterator[str]:
    """Yield a line for each configuration of a family that raises an undocumented error."""
    config, heads = family.sizes()["tiny"], list(family.heads())
    folder.mkdir()
    write_weights(folder / "model.safetensors", family, config, heads[0])
    hub = family.to_hub(config)
    every = list(texts(hub))
    options: list[dict[str, Any]] = [{}, {"head": heads[0]}, {"head": heads[-1], "init_head": True}]
    chosen = random.Random(family.name).sample(every, min(cases, len(every))) if cases else every
    for text, extra in zip(chosen, itertools.cycle(options), strict=False):
        (folder / family.config_files[0]).write_text(text, "utf-8")
        try:
            convert(CheckpointDir(folder, "source"), None, dry_run=True, **extra)
        except ZooError as error:
            if error.exit_code == 1 or len(str(error)) > 2000 or "\n" in str(error):
                yield f"{family.name} {text[:200]}: {str(error)[:300]}"
        except Exception as error:
            yield f"{family.name} {text[:200]}: {error!r}"


if __name__ == "__main__":
    for family in all_families().values():
        for line in bugs(Path(sys.argv[1], family.name), family, int(sys.argv[2])):
            print(line)
