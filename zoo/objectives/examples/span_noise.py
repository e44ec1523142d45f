"""Random noise masks of a text, and the replacement of noise spans by sentinels.

Raffel et al. 2020 (arXiv:1910.10683, section 3.1.4) and the released code (``preprocessors.py``:
``random_spans_noise_mask``, ``noise_span_to_unique_sentinel``,
``nonnoise_span_to_unique_sentinel``). The numbers of noise tokens and of spans are functions of the
text's length, so that the lengths of source and target are known before any draw.
"""

import numpy as np
from numpy.typing import NDArray

from zoo.objectives.examples.vocabulary import Ids

Noise = NDArray[np.bool_]  # (tokens,), true for noise tokens


def num_noise_tokens(tokens: int, rate: float) -> int:
    """Return the number of noise tokens: at least one, and not all; 0 for a single token."""
    # Halves are rounded to even, as where the released code computes the lengths of sources and
    # targets. Its noise masks round products in float32, which for 15 % adds one token at 18 of the
    # lengths up to 2,000, such as 190.
    return min(max(round(tokens * rate), 1), tokens - 1)


def num_noise_spans(tokens: int, rate: float, mean: float) -> int:
    """Return the number of noise spans; each follows a span of at least one other token."""
    noise = num_noise_tokens(tokens, rate)
    return min(max(round(noise / mean), 1), noise, tokens - noise)


def random_spans(tokens: int, rate: float, mean: float, rng: np.random.Generator) -> Noise:
    """Draw a noise mask of spans, (tokens,), bool; the first span is not noise, the last one is."""
    # All divisions of the tokens into these spans are equally likely.
    noise = num_noise_tokens(tokens, rate)
    spans = num_noise_spans(tokens, rate, mean)
    if not spans:
        return np.zeros(tokens, dtype=bool)
    sizes = np.stack([_parts(tokens - noise, spans, rng), _parts(noise, spans, rng)], axis=1)
    return np.repeat(np.arange(2 * spans) % 2 == 1, sizes.flatten())


def _parts(total: int, parts: int, rng: np.random.Generator) -> Ids:
    """Return a random partition of a number into positive integers, (parts,)."""
    cuts = np.sort(rng.permutation(total - 1)[: parts - 1]) + 1
    lengths: Ids = np.diff(cuts, prepend=0, append=total)
    return lengths


def single_tokens(tokens: int, rate: float, rng: np.random.Generator) -> Noise:
    """Draw a noise mask of independent tokens, (tokens,), bool."""
    # The released code (``iid_noise_mask``) draws each token independently. Here the number of
    # noise tokens is fixed to its mean, so that rows can be filled.
    noise = np.zeros(tokens, dtype=bool)
    noise[rng.permutation(tokens)[: num_noise_tokens(tokens, rate)]] = True
    return noise


def spans_to_sentinels(text: Ids, noise: Noise, sentinels: Ids) -> Ids:
    """Replace each span of noise of a text by a sentinel, in order; both are (tokens,)."""
    starts = noise & ~np.concatenate([[False], noise[:-1]])
    replaced = text.copy()
    replaced[starts] = sentinels[: np.count_nonzero(starts)]
    return np.asarray(replaced[~noise | starts])
