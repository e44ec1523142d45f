"""Pairs of texts with equal or different labels (Tunstall et al. 2022, arXiv:2209.11055)."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zoo.data.rng import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Pairs(NamedTuple):
    """Pairs of texts, by their indices."""

    first: "NDArray[np.int64]"  # (pairs,).
    second: "NDArray[np.int64]"  # (pairs,).
    similar: "NDArray[np.float32]"  # 1 for texts of one label, 0 for others, (pairs,).


def contrastive_pairs(labels: "NDArray[np.integer[Any]]", iterations: int, seed: int) -> Pairs:
    """Return random pairs: each text with one of its label and one of another, per iteration.

    A text that is the only one with its label is paired with itself.

    Args:
        labels: the index of the class of each text, (texts,); there are two classes or more.
        iterations: number of pairs of each text with texts of its label, and with other texts.
        seed: the seed of the random texts.
    """
    rng = generator(seed, "contrastive pairs")
    texts = np.arange(len(labels))
    label_texts = {label: texts[labels == label] for label in np.unique(labels)}
    other_texts = {label: texts[labels != label] for label in label_texts}
    pairs: list[tuple[int, int, int]] = []
    for _ in range(iterations):
        for text, label in zip(texts.tolist(), labels.tolist(), strict=True):
            positive = int(rng.choice(label_texts[label]))
            while positive == text and len(label_texts[label]) > 1:
                positive = int(rng.choice(label_texts[label]))
            pairs.append((text, positive, 1))
            negative = int(rng.choice(other_texts[label]))
            pairs.append((text, negative, 0))
    first, second, similar = np.array(pairs, np.int64).T
    return Pairs(first, second, similar.astype(np.float32))


def neighbouring_pairs(labels: "NDArray[np.integer[Any]]") -> Pairs:
    """Return each text with the next one, and the last with the first."""
    texts = np.arange(len(labels))
    following = np.roll(texts, -1)
    similar = labels == labels[following]
    return Pairs(texts, following, similar.astype(np.float32))
