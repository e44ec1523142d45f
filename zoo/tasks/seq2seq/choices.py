"""Losses that compare a target with the other targets of the data (Liu et al. 2022, "T-Few")."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from zoo.objectives.losses.cross_entropy import IGNORED

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

LENGTH_NORMALIZED = "length_normalized"
UNLIKELIHOOD = "unlikelihood"
LEAST_UNLIKELY = 1e-2  # added to the probability of not choosing a token
NO_CHOICE = -1  # of a target that is none of the choices


class Choices:
    """The targets of the training data."""

    def __init__(self, keys: "NDArray[np.int64]", tokens: "list[NDArray[Any]]") -> None:
        self.numbers = {int(key): number for number, key in enumerate(keys)}
        self.lengths = np.array([len(part) for part in tokens], np.int64)
        labels = np.full((len(tokens), int(self.lengths.max())), IGNORED, np.int64)
        for row, part in zip(labels, tokens, strict=True):
            row[: len(part)] = part
        self.labels = torch.from_numpy(labels)

    def number_of(self, keys: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return the number of each target, or ``NO_CHOICE``."""
        return np.array([self.numbers.get(int(key), NO_CHOICE) for key in keys], np.int64)

    def counts(self, numbers: "NDArray[np.int64]") -> "dict[str, NDArray[np.int64]]":
        """Return what each sample counts in a loss: itself, and the tokens of wrong targets."""
        has_choice = numbers != NO_CHOICE
        wrong_tokens = np.where(has_choice, self.lengths.sum() - self.lengths[numbers], 0)
        return {LENGTH_NORMALIZED: has_choice.astype(np.int64), UNLIKELIHOOD: wrong_tokens}


class ChoiceLosses(NamedTuple):
    """Sums of the losses over the samples of a batch.

    They follow arXiv:2205.05638, section 3.2, and the released code (r-three/t-few,
    ``EncoderDecoder.py``), whose constant in the logarithm is implemented here: with it the loss of
    a certain wrong target is finite.
    """

    length_normalized: "Tensor"
    unlikelihood: "Tensor"

    @classmethod
    def of(cls, losses: "Tensor", labels: "Tensor", targets: "Tensor") -> "ChoiceLosses":
        """Return the sums over a batch.

        Args:
            losses: cross-entropies of all tokens, (rows, choices, tokens).
            labels: the tokens of all choices, (choices, tokens), padded with -100.
            targets: the right choice of each row, (rows,); ``NO_CHOICE`` for none.
        """
        is_token = labels != IGNORED
        has_target = targets != NO_CHOICE
        scores = -losses.sum(-1) / is_token.sum(-1)
        normalized = F.cross_entropy(scores[has_target], targets[has_target], reduction="sum")
        is_wrong = torch.arange(len(labels), device=targets.device) != targets[:, None]
        is_counted = is_token & is_wrong[..., None] & has_target[:, None, None]
        unlikely = -torch.log(1 - torch.exp(-losses) + LEAST_UNLIKELY)
        return cls(normalized, unlikely.masked_fill(~is_counted, 0).sum())


def for_each_choice(inputs: "Mapping[str, Tensor]", choices: int) -> "dict[str, Tensor]":
    """Return inputs in which each row is repeated for each choice."""
    return {name: tensor.repeat_interleave(choices, 0) for name, tensor in inputs.items()}
