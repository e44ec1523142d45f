"""Comparison of two vocabularies by string: each row of an embedding table belongs to a string."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHOWN = 3  # tokens in a message


class DifferentToken(NamedTuple):
    """An id that stands for different strings in two vocabularies; ``None`` where it is unused."""

    id: int
    first: str | None
    second: str | None


def different_tokens(
    first: Mapping[str, int], second: Mapping[str, int], *, used_by_both: bool = False
) -> list[DifferentToken]:
    """Return the ids that stand for different strings, in ascending order."""
    tokens = _by_id(first)
    others = _by_id(second)
    ids = tokens.keys() & others.keys() if used_by_both else tokens.keys() | others.keys()
    return [
        DifferentToken(number, tokens.get(number), others.get(number))
        for number in sorted(ids)
        if tokens.get(number) != others.get(number)
    ]


def _by_id(vocabulary: Mapping[str, int]) -> dict[int, str]:
    # of several strings with one id, the first in the alphabet
    return {number: token for token, number in sorted(vocabulary.items(), reverse=True)}


def describe_differences(
    different: Sequence[DifferentToken], first: str, second: str, total: int
) -> str:
    """Return how many tokens differ, and the first ones."""
    (number, there, here), *more = different[:SHOWN]
    examples = [f"id {number} is {_quoted(there)} in {first} and {_quoted(here)} in {second}"]
    examples += [f"{number} is {_quoted(a)} and {_quoted(b)}" for number, a, b in more]
    rest = ", ..." if len(different) > SHOWN else ""
    return f"{len(different):,} of {total:,} tokens differ ({', '.join(examples)}{rest})"


def _quoted(token: str | None) -> str:
    return "unused" if token is None else repr(token)
