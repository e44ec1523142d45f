"""Minimum description length of labels, by online coding."""

import math
from dataclasses import dataclass

import numpy as np

from zoo.probing.classifier import Indices, ProbeVectors, score_probe, train_probe
from zoo.probing.settings import ProbeRecipe

# Parts of the training data after which a probe is trained anew (Voita and Titov 2020,
# arXiv:2003.12298, section 3.2).
FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class OnlineCode:
    """The length of the code of labels.

    Attributes:
        bits: length of the code of all labels.
        uniform_bits: length if all classes are equally probable.
        ends: number of labels up to the end of each portion.
        portion_bits: length of the code of each portion.
    """

    bits: float
    uniform_bits: float
    ends: list[int]
    portion_bits: list[float]

    @property
    def compression(self) -> float:
        """The uniform length divided by the length."""
        return self.uniform_bits / self.bits


def online_code(
    vectors: ProbeVectors,
    labels: Indices,
    *,
    train: Indices,
    text_numbers: Indices,
    validation: Indices,
    classes: int,
    recipe: ProbeRecipe,
    seed: int,
) -> OnlineCode:
    """Return the length of the labels of the training examples, given their vectors.

    The texts are in random order. The labels of the first portion are sent with a uniform code,
    and those of each next one by the probabilities of a probe that is trained on all portions
    before it (equation 3 of the paper):

        t_1 log2 K - sum over i of log2 p_i(y_(t_i + 1) ... y_(t_(i + 1)) | vectors)

    Args:
        vectors: vectors of all examples.
        labels: class of each example, (examples,).
        train: indices of the examples whose labels are sent.
        text_numbers: text of each example, (examples,); a portion has whole texts.
        validation: indices of the examples that decide when to stop, whose labels are not sent.
        classes: number of classes.
        recipe: the kind of the probe, and its training.
        seed: seed of the order of the texts and of the probes.
    """
    portions = split_portions(train, text_numbers, seed)
    first_portion_bits = len(portions[0]) * math.log2(classes)
    portion_bits = [first_portion_bits]
    ends = [len(portions[0])]
    for number in range(1, len(portions)):
        probe = train_probe(
            vectors,
            labels,
            train=np.concatenate(portions[:number]),
            validation=validation,
            classes=classes,
            recipe=recipe,
            seed=seed,
        )
        portion_bits.append(score_probe(probe, vectors, labels, portions[number]).bits)
        ends.append(ends[-1] + len(portions[number]))
    return OnlineCode(sum(portion_bits), len(train) * math.log2(classes), ends, portion_bits)


def split_portions(train: Indices, text_numbers: Indices, seed: int) -> list[Indices]:
    """Return the examples of each portion; few texts make fewer portions than ``FRACTIONS``."""
    texts = np.unique(text_numbers[train])
    order = np.random.default_rng(seed).permutation(texts)
    place_of_text = np.empty(int(texts.max()) + 1, np.int64)
    place_of_text[order] = np.arange(len(order))
    places = place_of_text[text_numbers[train]]
    portions = []
    start = 0
    for fraction in FRACTIONS:
        end = max(round(fraction * len(order)), 1)
        if end > start:
            portions.append(train[(places >= start) & (places < end)])
            start = end
    return portions
