"""ELMo compared with outputs of the original TensorFlow code, with the state carried over batches.

    python -m benchmarks.elmo FOLDER

The folder holds the small model of AllenNLP's tests: ``options.json``, HDF5 weights,
``sentences.json``, and the top layer of both directions, computed in batches of three sentences
(sentence k of file j is row j of batch k). The model is converted and loaded like any other.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo.inference.load_model import load_model
from zoo.nn.layers.recurrent import RecurrentState
from zoo_elmo.characters import sentence_ids
from zoo_elmo.model import Elmo

LIMIT = 1e-5


def read(folder: Path) -> tuple[list[list[str]], list[list[Any]]]:
    """Return sentences and outputs, (2, words, hidden), of each batch."""
    sentences = json.loads((folder / "sentences.json").read_text("utf-8"))
    files = [h5py.File(folder / f"lm_embeddings_{j}.hdf5") for j in range(len(sentences))]
    batches = range(len(sentences[0]))
    return (
        [[column[k] for column in sentences] for k in batches],
        [[file[str(k)][()] for file in files] for k in batches],
    )


def run(
    model: Elmo, sentences: list[str], characters: int, state: RecurrentState | None
) -> list[Any]:
    """Return the top layer of each sentence, (2, words, hidden), without boundary tokens."""
    rows = [sentence_ids(text.split(), characters) for text in sentences]
    ids = torch.zeros(len(rows), max(map(len, rows)), characters, dtype=torch.int64)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row)] = torch.tensor(row)
    with torch.inference_mode():
        top = model.backbone(ids, None, state)[-1]
    inner = [states[1 : len(row) - 1] for states, row in zip(top, rows, strict=True)]
    return [torch.stack(states.chunk(2, dim=-1)).numpy() for states in inner]


def compare(model: Elmo, folder: Path, characters: int, *, carry: bool) -> float:
    """Return the largest absolute difference over all batches."""
    state = RecurrentState()
    worst = 0.0
    for sentences, expected in zip(*read(folder), strict=True):
        outputs = run(model, sentences, characters, state if carry else None)
        state = RecurrentState(state.ended)
        for ours, theirs in zip(outputs, expected, strict=True):
            assert ours.shape == theirs.shape, "the words are not the fixture's"
            worst = max(worst, float(np.abs(ours - theirs).max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as scratch:
        report = convert(CheckpointDir(folder, str(folder)), Path(scratch) / "model")
        checkpoint = load_checkpoint(Path(scratch) / "model")
        characters: int = checkpoint.config.max_characters  # type: ignore[attr-defined]
        print(f"{report.parameters:,} parameters from {report.format}, round trip exact")
        differences = {}
        for dtype in (torch.float32, torch.float64):
            model = load_model(checkpoint, dtype)
            assert isinstance(model, Elmo)
            differences[dtype] = compare(model, folder, characters, carry=True)
            print(f"{dtype}: largest difference {differences[dtype]:.1e}")
            reset = compare(model, folder, characters, carry=False)
            print(f"{dtype}: {reset:.1e} if each batch begins afresh, so the state counts")
            assert reset > 100 * LIMIT
    if not all(value <= LIMIT for value in differences.values()):
        raise SystemExit(f"more than {LIMIT:.0e}")


if __name__ == "__main__":
    main()
