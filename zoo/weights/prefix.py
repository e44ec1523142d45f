"""Finding the prefix under which a file stores the trunk: by maximal match, never by guess."""

from collections import Counter
from collections.abc import Iterable

from zoo.errors import VerificationError
from zoo.weights.rules import WeightMap


def find_prefix(weights: WeightMap, names: Iterable[str], backbone: set[str]) -> str:
    """Return what stands in front of the trunk's tensors in a file.

    Args:
        weights: the family's map.
        names: the tensor names of the file.
        backbone: the Hub names of the trunk, without ``weights.prefix``.

    Raises:
        VerificationError: two prefixes match equally many tensors.
    """
    votes: Counter[str] = Counter()
    for name in names:
        present = weights.current(name)
        cuts = [0, *(k + 1 for k, c in enumerate(present) if c == ".")]
        votes.update(present[:cut] for cut in cuts if present[cut:] in backbone)
    ranked = votes.most_common(2)
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        found = sorted(p for p, n in votes.items() if n == ranked[0][1])
        raise VerificationError(
            f"the file holds {len(found)} trunks of this family, under {', '.join(found)}",
            "split it: which one is meant cannot be told",
        )
    return ranked[0][0] if ranked else weights.prefix


def canonical_names(
    weights: WeightMap, names: Iterable[str], backbone: set[str], prefix: str
) -> dict[str, str]:
    """Map each name of a file to the name that the rules use.

    Args:
        weights: the family's map.
        names: the tensor names of the file.
        backbone: the Hub names of the trunk, without ``weights.prefix``.
        prefix: what stands in front of them in the file.

    Returns:
        file name -> canonical name, in the order given.
    """
    outer = prefix.removesuffix(weights.prefix)
    found = {}
    for name in names:
        present = weights.current(name)
        rest = present.removeprefix(prefix)
        if present.startswith(prefix) and rest in backbone:
            found[name] = weights.prefix + rest
        else:
            found[name] = present.removeprefix(outer)
    return found
