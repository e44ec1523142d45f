"""Configurations of all families: conversion, verification, and conversion back."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.case import run_zoo
from tests.fuzz.reader import Reader
from tests.fuzz.readers.examples import golden, zoo
from tests.fuzz.readers.weights import RESULT, SOURCE, stored

CASES = {
    "albert": "masked-lm",
    "bert": "sequence-classification",
    "deberta": "none",
    "distilbert": "masked-lm",
    "electra": "replaced-token-detection",
    "elmo": "none",
    "gpt": "causal-lm",
    "roberta": "token-classification",
    "t5": "version-1.1-seq2seq-lm",
}
BACK = "back-on-the-hub"
# Keys that a conversion rewrites or derives: metadata of the writing program; ties, which follow
# from the tensors; and label ids, which follow from id2label.
FREE = {"transformers_version", "torch_dtype", "dtype", "_name_or_path", "architectures"}
FREE |= {"tie_word_embeddings", "label2id"}


class Configuration(Reader):
    """Reader of the ``config.json`` of one family."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.name = f"config-{family}"
        self.file = "small_options.json" if family == "elmo" else "config.json"
        self.targets = (f"{SOURCE}/{self.file}",)

    def make(self, folder: Path) -> None:
        example = golden(self.family, CASES[self.family])
        for path in (folder / "scene", folder / "sound"):
            (path / SOURCE).mkdir(parents=True)
            (path / SOURCE / self.file).write_text(json.dumps(example.hub_config, indent=1))
            self._write(path / SOURCE, example.weights)
        zoo(folder / "sound", self.commands(Random(0))[0])

    def _write(self, folder: Path, weights: Mapping[str, Any]) -> None:
        if self.family == "elmo":
            import h5py

            with h5py.File(folder / "small_weights.hdf5", "w") as file:
                for name, array in weights.items():
                    file.create_dataset(name, data=array)
            return
        from safetensors.numpy import save_file

        save_file(dict(weights), folder / "model.safetensors", {"format": "pt"})

    def commands(self, random: Random) -> list[list[str]]:
        return [["convert", SOURCE, "-o", RESULT]]

    def check(self, folder: Path) -> str:
        sound = stored(folder.parent / "sound" / RESULT)
        for name, array in stored(folder / RESULT).items():
            if name in sound and array.tobytes() != sound[name].tobytes():
                return f"{name} differs"
        return (
            must_succeed(["verify", RESULT, "--no-parity"], folder)
            or must_succeed(["convert", RESULT, "--to", "hub", "-o", BACK], folder)
            or self._keys(folder)
        )

    def _keys(self, folder: Path) -> str:
        """Compare the configuration after conversion in both directions with the mutated file."""
        before = json.loads((folder / SOURCE / self.file).read_bytes())
        path = next((folder / BACK).glob("*options.json"), folder / BACK / "config.json")
        after = json.loads(path.read_bytes())
        for key in before.keys() & after.keys() - FREE:
            same = _texts(before[key]) == after[key] if key == "id2label" else before[key] is None
            if not same and not _equal(before[key], after[key]):
                return f"{key} was {str(before[key])[:60]}, came back as {str(after[key])[:60]}"
        return ""


def _texts(labels: Any) -> Any:
    """Return labels converted to text, as by a conversion."""
    return {key: str(label) for key, label in labels.items()}


def _equal(first: Any, second: Any) -> bool:
    """Return ``True`` if two JSON values are equal; 1 equals 1.0, and NaN equals NaN."""
    if isinstance(first, dict) and isinstance(second, dict):
        return all(_equal(first[key], second[key]) for key in first.keys() & second.keys())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first):
        return math.isnan(second)
    return bool(first == second)


def must_succeed(command: list[str], folder: Path) -> str:
    """Run a command on the output of another; return its error, if any."""
    code = run_zoo(command, folder.parent)
    if not code:
        return ""
    return (
        f"zoo {' '.join(command)}: exit code {code}: {(folder.parent / 'err').read_text()[-500:]}"
    )


READERS = tuple(Configuration(family) for family in CASES)
