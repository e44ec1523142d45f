"""Sampled softmax: a cross-entropy over a sample of a large vocabulary."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import UsageError
from zoo.nn.heads import VocabularyProjection
from zoo.nn.kernels.onednn_linear import linear
from zoo.nn.row_chunks import fits_at_once
from zoo.objectives.options import Options


class SampledOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a sampled softmax."""

    # number of sampled words in training; ``None`` for the whole vocabulary
    num_sampled: int | None = None

    def __post_init__(self) -> None:
        if self.num_sampled is not None and self.num_sampled < 1:
            raise ValueError(f"num_sampled is {self.num_sampled}, which is not positive")

    def check_samples(self, vocabulary: int) -> None:
        """Check that the vocabulary has more words than the sample.

        Raises:
            UsageError: the sample is not smaller.
        """
        if self.num_sampled is not None and self.num_sampled >= vocabulary:
            raise UsageError(
                f"objective_args.num_sampled is {self.num_sampled}, and the vocabulary has "
                f"{vocabulary} words",
                "--set objective_args.num_sampled=null for all of them",
            )


class SampledWords(NamedTuple):
    """Distinct words sampled from a vocabulary."""

    words: Tensor  # ids of distinct words, (samples,), int64
    num_tries: int | Tensor  # number of draws, repetitions included; an integer or a scalar tensor


def probability(words: Tensor, vocabulary: int) -> Tensor:
    """Return the probability of each word k: log((k + 2) / (k + 1)) / log(vocabulary + 1).

    The result is float64, with the shape of ``words``.
    """
    return torch.log1p(1 / (words.double() + 1)) / math.log(vocabulary + 1)


def log_uniform_sample(
    vocabulary: int, samples: int, generator: torch.Generator | None = None
) -> SampledWords:
    """Sample distinct words from the log-uniform distribution.

    Args:
        vocabulary: number of words.
        samples: number of distinct words to draw, less than ``vocabulary``.
        generator: random generator on the CPU.
    """
    if not 0 < samples < vocabulary:
        raise ValueError(f"{samples} samples of a vocabulary of {vocabulary}")
    draws = torch.empty(0, dtype=torch.int64)
    first_draws = np.empty(0, dtype=np.int64)  # Index of the first draw of each word.
    while len(first_draws) < samples:
        uniform = torch.rand(2 * samples, dtype=torch.float64, generator=generator)
        new_draws = (uniform * math.log(vocabulary + 1)).exp().long() - 1
        draws = torch.cat([draws, new_draws.clamp(max=vocabulary - 1)])
        _, first_draws = np.unique(draws.numpy(), return_index=True)
    indices = torch.from_numpy(np.sort(first_draws)[:samples])
    return SampledWords(draws[indices], int(indices[-1]) + 1)


def sampled_logits(
    softmax: nn.Linear, hidden: Tensor, targets: Tensor, sample: SampledWords | None
) -> tuple[Tensor | VocabularyProjection, Tensor]:
    """Return logits of the target and the sampled words, and labels, for a cross-entropy.

    Args:
        softmax: output layer, weight (vocabulary, hidden).
        hidden: hidden states, (n, hidden).
        targets: target words, (n,), int64.
        sample: sampled words; ``None`` for the whole vocabulary.

    Returns:
        Logits, (n, 1 + samples), with the target in column 0, and labels of 0, (n,); or, without
        a sample, logits, (n, vocabulary), and ``targets``; the projection to the logits, if they
        are too many to be held at once.
    """
    if sample is None:
        if fits_at_once(len(targets), softmax.out_features):
            return softmax(hidden), targets
        return VocabularyProjection(hidden, softmax.weight, softmax.bias), targets
    words = sample.words.to(targets.device)
    table = softmax.weight
    bias = softmax.bias

    def log_expected_count(ids: Tensor) -> Tensor:
        """Return the log of the probability that a word is in the sample."""
        log_absence = sample.num_tries * torch.log1p(-probability(ids, len(table)))
        return (-torch.expm1(log_absence)).log().to(bias.dtype)

    target_logits = (hidden * table[targets]).sum(-1) + bias[targets]
    target_logits = target_logits - log_expected_count(targets)
    word_logits = linear(hidden, table[words], bias[words]) - log_expected_count(words)
    # A sampled word that is the target must not count against it.
    word_logits = word_logits.masked_fill(words == targets.unsqueeze(-1), -math.inf)
    logits = torch.cat([target_logits.unsqueeze(-1), word_logits], dim=-1)
    return logits, torch.zeros_like(targets)


def sampled_softmax_loss(
    softmax: nn.Linear, hidden: Tensor, targets: Tensor, sample: SampledWords | None
) -> Tensor:
    """Return the loss of each target, (n,); for the arguments, see ``sampled_logits``."""
    # A softmax over 800,000 words is slow. The sampled softmax (Jean et al. 2015, arXiv:1412.2007)
    # compares the target with a few other words, drawn once per batch, and subtracts from each
    # logit the logarithm of the word's expected count in the sample, which corrects the gradient.
    # Words are drawn from a log-uniform distribution, which suits a vocabulary sorted by frequency,
    # until enough distinct ones are found; a sampled word that is the target is ignored.
    # (TensorFlow's ``sampled_softmax_loss`` does the same by default.)
    logits, labels = sampled_logits(softmax, hidden, targets, sample)
    if isinstance(logits, VocabularyProjection):
        logits = logits.logits()
    return F.cross_entropy(logits, labels, reduction="none")
