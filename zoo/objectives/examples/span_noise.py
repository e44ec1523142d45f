"""Which tokens of a text are noise, and what texts become that lack it.

This is the algebra of Raffel et al. 2020 (arXiv:1910.10683, section 3.1.4) and of its released
code (``preprocessors.py``: ``random_spans_noise_mask``, ``noise_span_to_unique_sentinel``,
``nonnoise_span_to_unique_sentinel``). How many tokens are noise, and in how many spans, follows
from the length of the text alone, so that how long a source and a target are is known before
anything is drawn.
"""

import numpy as np
from numpy.typing import NDArray

from zoo.objectives.examples.vocabulary import Ids

Noise = NDArray[np.bool_]  # of each token of a text, whether it is noise


def num_noise_tokens(tokens: int, rate: float) -> int:
    """Return how many tokens are noise: at least one, and never all; none of a single token.

    Halves are rounded to even numbers, as in the released code, where it says how long sources
    and targets are. Its masks round products in float32: of 15 %, that is a token more for 18
    lengths up to 2,000, such as 190.
    """
    return min(max(round(tokens * rate), 1), tokens - 1)


def num_noise_spans(tokens: int, rate: float, mean: float) -> int:
    """Return in how many spans they are. There is a span of other tokens before each."""
    noise = num_noise_tokens(tokens, rate)
    return min(max(round(noise / mean), 1), noise, tokens - noise)


def random_spans(tokens: int, rate: float, mean: float, rng: np.random.Generator) -> Noise:
    """Draw spans: others and noise in turn, the first of them others, the last noise.

    All ways to divide the tokens so are equally likely.

    Args:
        tokens: of the text.
        rate: share of tokens that is noise.
        mean: tokens of a span of noise, on average.
        rng: for the draws.

    Returns:
        (tokens,).
    """
    noise, spans = num_noise_tokens(tokens, rate), num_noise_spans(tokens, rate, mean)
    if not spans:
        return np.zeros(tokens, dtype=bool)
    sizes = np.stack([_parts(tokens - noise, spans, rng), _parts(noise, spans, rng)], axis=1)
    return np.repeat(np.arange(2 * spans) % 2 == 1, sizes.flatten())


def _parts(total: int, parts: int, rng: np.random.Generator) -> Ids:
    """Divide a number into positive ones, (parts,)."""
    cuts = np.sort(rng.permutation(total - 1)[: parts - 1]) + 1
    found: Ids = np.diff(cuts, prepend=0, append=total)
    return found


def single_tokens(tokens: int, rate: float, rng: np.random.Generator) -> Noise:
    """Draw noise that does not depend on its neighbours, (tokens,).

    The released code (``iid_noise_mask``) decides on each token alone; here, as many are chosen
    as that gives on average, so that rows can be filled.
    """
    found = np.zeros(tokens, dtype=bool)
    found[rng.permutation(tokens)[: num_noise_tokens(tokens, rate)]] = True
    return found


def spans_to_sentinels(text: Ids, noise: Noise, sentinels: Ids) -> Ids:
    """Put a sentinel in the place of each span of noise, the first one for the first span.

    Args:
        text: (tokens,).
        noise: (tokens,).
        sentinels: at least as many as there are spans.
    """
    starts = noise & ~np.concatenate([[False], noise[:-1]])
    found = text.copy()
    found[starts] = sentinels[: np.count_nonzero(starts)]
    return np.asarray(found[~noise | starts])
