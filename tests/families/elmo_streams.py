"""Streams of words for ELMo's training, and a small model."""

from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from tests.objectives.words import vocabulary
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.objectives.base import Example, LossOutput
from zoo.objectives.losses.sampled_softmax import SampledOptions
from zoo_elmo import ElmoFamily
from zoo_elmo.config import SIZES
from zoo_elmo.objective import BidirectionalLm

ELMO = ElmoFamily()
ROLES = {"bos": "<S>", "eos": "</S>", "unk": "<UNK>"}  # 0, 1 and 2
SPELLED = [f"w{number}" * (1 + number % 3) for number in range(3, 40)]
WORDS = vocabulary(SPELLED, roles=ROLES, sentinels=0)
CONFIG = replace(SIZES["tiny"], vocab_size=40, dropout=0.0, cell_clip=0.5, projection_clip=0.3)
BEGIN, END = 0, 1


def objective(length: int, samples: int | None = None, **config: Any) -> BidirectionalLm:
    options = SampledOptions(num_sampled=samples)
    return BidirectionalLm(WORDS, replace(CONFIG, **config), length, options)


def rows(split: Split, length: int, samples: int | None = None, seed: int = 0) -> list[Example]:
    laid = objective(length, samples).dataset(split, seed)
    return [laid.example(index, generator(seed, index)) for index in range(len(laid))]


def random_split(words: int, seed: int = 0) -> Split:
    """Return one document of sentences of one to seven random words."""
    drawn = np.random.default_rng(seed)
    ids, sentences = drawn.integers(3, 40, words).tolist(), []
    while ids:
        size = int(drawn.integers(1, 8))
        sentences.append(ids[:size])
        ids = ids[size:]
    return Split.from_documents([sentences])


def make_model(task: BidirectionalLm, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return task.model(ELMO, task.config).double()


def losses(outcome: LossOutput) -> dict[str, float]:
    return {way: float(total.detach()) for way, total in outcome.sums.items()}
