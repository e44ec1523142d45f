"""The prefix of the backbone's tensors in a file, found by the largest number of matches."""

from collections import Counter
from collections.abc import Iterable

from zoo.errors import VerificationError
from zoo.weights.rules import WeightMap


def find_prefix(weights: WeightMap, names: Iterable[str], backbone: set[str]) -> str:
    """Return the prefix of the backbone's tensors in a file."""
    votes: Counter[str] = Counter()
    for name in names:
        present = weights.current(name)
        cuts = [0, *(k + 1 for k, c in enumerate(present) if c == ".")]
        votes.update(present[:cut] for cut in cuts if present[cut:] in backbone)
    ranked = votes.most_common(2)
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        prefixes = sorted(p for p, n in votes.items() if n == ranked[0][1])
        raise VerificationError(
            f"the file holds {len(prefixes)} backbones of this family, under {', '.join(prefixes)}",
            "split it: which one to convert is ambiguous",
        )
    return ranked[0][0] if ranked else weights.prefix


def canonical_names(
    weights: WeightMap, names: Iterable[str], backbone: set[str], prefix: str
) -> dict[str, str]:
    """Map each name of a file to the name that the rules use, in the order of ``names``."""
    outer = prefix.removesuffix(weights.prefix)  # of a wrapper, such as "module."
    canonical = {}
    for name in names:
        present = weights.current(name)
        rest = present.removeprefix(prefix)
        if present.startswith(prefix) and rest in backbone:
            canonical[name] = weights.prefix + rest
        else:
            canonical[name] = present.removeprefix(outer)
    return canonical
