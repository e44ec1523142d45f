"""Replaced-token detection with a small ELECTRA: its objective, rows and models."""

from typing import Any

import numpy as np
import torch

from tests.objectives.words import vocabulary
from zoo.data.rng import generator
from zoo.objectives.base import Example
from zoo.objectives.examples.packing import pack, without_special_tokens
from zoo.objectives.replaced_token_detection import ReplacedOptions, ReplacedTokenDetection
from zoo.plugins import get_family
from zoo_electra.config import ElectraConfig

ELECTRA = get_family("electra")
SMALL = ElectraConfig(
    vocab_size=200,
    embedding_size=24,
    hidden_size=48,
    num_layers=2,
    num_heads=4,
    intermediate_size=80,
    max_positions=40,
    dropout=0.0,
    attention_dropout=0.0,
)
ROLES = {"pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}
WORDS = vocabulary(roles=ROLES, sentinels=0, words=[f"w{n}" for n in range(150)], size=200)
LENGTH = 32
FEW = slice(3, 8)  # the ids of texts, favoured by the generator: some samples are correct


def objective(config: Any = SMALL, **options: Any) -> ReplacedTokenDetection:
    return ReplacedTokenDetection(WORDS, config, LENGTH, ReplacedOptions(**options))


def drawn_rows(task: ReplacedTokenDetection, count: int = 6) -> list[Example]:
    """Return masked rows of one text each, of several lengths."""
    rng = np.random.default_rng(1)
    texts = [
        without_special_tokens(rng.integers(FEW.start, FEW.stop, size=LENGTH - 3 * (n % 3)))
        for n in range(count)
    ]
    packed = [pack([text], length=LENGTH, pad=0) for text in texts]
    return [task.mask_row(row, generator(0, "masks", n)) for n, row in enumerate(packed)]


def make_model(task: ReplacedTokenDetection, family: Any = ELECTRA) -> Any:
    torch.manual_seed(0)
    pair: Any = task.model(family, task.config).double().eval()
    for parameter in pair.parameters():
        parameter.data.mul_(3)  # larger than at initialization, for larger effects
    pair.generator.head.bias.data[FEW] += 5.0
    return pair
