"""Models and tables for tests of probing."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.checkpoints import Make
from zoo.checkpoint import Checkpoint, load_checkpoint, load_text_tokenizer
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo.inference.torch_session import TorchSession
from zoo.probing.layers import LayerReader
from zoo.probing.tasks.base import ProbedExample, ProbedText

LETTERS = "abcdefghij"


def converted(make: Make, architecture: str, folder: Path, **changes: Any) -> Checkpoint:
    source = CheckpointDir(make(architecture, **changes), "source")
    convert(source, folder / "ours")
    return load_checkpoint(folder / "ours")


def reader_of(checkpoint: Checkpoint, **options: Any) -> LayerReader:
    session = TorchSession(checkpoint, "cpu")
    return LayerReader(checkpoint, session, load_text_tokenizer(checkpoint), **options)


def whole(text: str, label: str = "x", pair: str | None = None) -> ProbedText:
    """Return a text with one label."""
    return ProbedText(text, (ProbedExample(label, (0,), text, "t:1"),), "t:1", pair)


def worded(*words: str) -> ProbedText:
    """Return a text whose words have labels: vowels and consonants."""
    examples = []
    for number, word in enumerate(words):
        label = "vowel" if word[0] in "aei" else "consonant"
        examples.append(ProbedExample(label, (number,), word, f"t:{number + 1}"))
    spans = tuple((number, number + 1) for number in range(len(words)))
    return ProbedText(" ".join(words), tuple(examples), "t:1", words=words, spans=spans)


def random_problem(
    examples: int = 240, width: int = 6, classes: int = 3, layers: int = 1
) -> tuple[list[Any], Any]:
    """Return the vectors of layers, (examples, width) each, and noisy labels of the first one."""
    generator = np.random.default_rng(5)
    arrays = []
    for number in range(layers):
        array = generator.normal(3 * number, 2.0 + number, (examples, width))
        arrays.append(array.astype(np.float32))
    weights = generator.normal(size=(width, classes))
    scores = arrays[0] @ weights + generator.gumbel(size=(examples, classes))
    return arrays, scores.argmax(1)


def double(tensor: torch.Tensor) -> Any:
    return tensor.detach().double().numpy()
