"""Shares of the sources of a mixture, and the whole numbers of rows that have them."""

import math
from collections.abc import Collection, Mapping
from fractions import Fraction

from zoo.errors import UsageError, did_you_mean
from zoo.io.json import JsonStruct

# Rows of a cycle at most. Shares that no shorter cycle has are rounded to multiples of 1 / this.
MAX_CYCLE = 10_000
SUM_TOLERANCE = 1e-6  # Largest difference between the sum of weights and 1.
HINT_DIGITS = 4  # Digits of the weights that an error proposes.


class MixtureStage(JsonStruct, kw_only=True):
    """Weights of a mixture from a step on, as a run's manifest records them."""

    step: int  # First step with these weights.
    # Rows that were read before that step, of the length that the rows of that step have.
    rows: int
    counts: dict[str, int]  # Source -> number of its rows in a cycle.

    @property
    def shares(self) -> dict[str, float]:
        """Share of the rows of each source."""
        total = sum(self.counts.values())
        return {name: count / total for name, count in self.counts.items()}


def require_shares(weights: Mapping[str, float], subject: str) -> None:
    """Check that weights are shares: none is negative, and they add up to 1.

    Args:
        weights: source -> weight.
        subject: what has the weights, for messages.
    """
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise UsageError(
                f"{subject}: the weight of {name} is {weight}", "give a number from 0 to 1"
            )
    total = sum(weights.values())
    if abs(total - 1) <= SUM_TOLERANCE:
        return
    what = f"{subject}: the weights of {', '.join(weights)} add up to {total:.6g}, and not to 1"
    if not total:
        raise UsageError(what, "give one of them a weight")
    unit = 10**HINT_DIGITS
    proposed = round_to_total({name: weight / total for name, weight in weights.items()}, unit)
    texts = [f"{name}={count / unit:g}" for name, count in proposed.items()]
    raise UsageError(what, f"in these proportions, they are {', '.join(texts)}")


def require_weights(weights: Mapping[str, float], sources: Collection[str], subject: str) -> None:
    """Check that all sources have a weight, nothing else does, and that they are shares.

    Args:
        weights: source -> weight.
        sources: names of the sources.
        subject: what has the weights, for messages.
    """
    for name in weights:
        if name not in sources:
            hint = did_you_mean(name, list(sources)) or f"there are {', '.join(sources)}"
            raise UsageError(f"{subject}: there is no source {name}", hint)
    for name in sources:
        if name not in weights:
            raise UsageError(
                f"{subject}: {', '.join(weights)} has a weight, and {name} has none",
                f"--weight {name}=SHARE, so that all add up to 1",
            )
    require_shares(weights, subject)


def shares_by_epochs(sizes: Mapping[str, int], epochs: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each source if an epoch of the run has some passes over it.

    Args:
        sizes: source -> number of its tokens.
        epochs: source -> number of passes over it.
    """
    return _normalized({name: size * epochs[name] for name, size in sizes.items()})


def shares_by_temperature(
    sizes: Mapping[str, int], temperature: float, limit: int | None = None
) -> dict[str, float]:
    """Return shares that grow with the sizes of the sources.

    Temperature-scaled mixing (Raffel et al. 2020, arXiv:1910.10683, section 3.5.2): shares are
    proportional to ``min(size, limit) ** (1 / temperature)``. With a temperature of 1, this is
    examples-proportional mixing; the exponent of mT5 (Xue et al. 2021, arXiv:2010.11934, section
    3.2) is ``1 / temperature``.

    Args:
        sizes: source -> number of its tokens.
        temperature: 1 for shares in proportion to the sizes; higher for more equal ones.
        limit: largest size that counts; ``None`` for no limit.
    """
    powers = {}
    for name, size in sizes.items():
        counted_size = size if limit is None else min(size, limit)
        powers[name] = counted_size ** (1 / temperature)
    return _normalized(powers)


def _normalized(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    return {name: value / total for name, value in values.items()}


def cycle_counts(shares: Mapping[str, float], subject: str) -> dict[str, int]:
    """Return the number of rows of each source in a cycle.

    It is the shortest cycle that has exactly these shares, as decimal numbers, or else one of
    ``MAX_CYCLE`` rows.

    Args:
        shares: source -> share of the rows, which add up to 1.
        subject: what has the shares, for messages.
    """
    length = 1
    fractions = {name: Fraction(repr(float(share))) for name, share in shares.items()}
    for fraction in fractions.values():
        length = math.lcm(length, fraction.denominator)
    if length <= MAX_CYCLE and sum(fractions.values()) == 1:
        return {name: int(fraction * length) for name, fraction in fractions.items()}
    counts = round_to_total(shares, MAX_CYCLE)
    for name, share in shares.items():
        if share and not counts[name]:
            raise UsageError(
                f"{subject}: the share of {name} is {share:.2g}, less than a row of {MAX_CYCLE:,}",
                f"give it 0, or {1 / MAX_CYCLE:g} or more",
            )
    return counts


def round_to_total(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """Return whole numbers in proportion to shares that add up to a total: largest remainders."""
    exact = {name: share * total for name, share in shares.items()}
    counts = {name: math.floor(value) for name, value in exact.items()}
    remainders = sorted(counts, key=lambda name: counts[name] - exact[name])
    for name in remainders[: total - sum(counts.values())]:
        counts[name] += 1
    return counts
