"""Comparison of two vocabularies by string: each row of an embedding table belongs to a string."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MAX_TOKENS_SHOWN = 3  # Tokens in a message.


class DifferentToken(NamedTuple):
    """An id that stands for different strings in two vocabularies; ``None`` where it is unused."""

    id: int
    first: str | None
    second: str | None


def different_tokens(
    first: Mapping[str, int], second: Mapping[str, int], *, used_by_both: bool = False
) -> list[DifferentToken]:
    """Return the ids that stand for different strings, in ascending order."""
    first_tokens = _tokens_by_id(first)
    second_tokens = _tokens_by_id(second)
    if used_by_both:
        ids = first_tokens.keys() & second_tokens.keys()
    else:
        ids = first_tokens.keys() | second_tokens.keys()
    differences = []
    for number in sorted(ids):
        first_token = first_tokens.get(number)
        second_token = second_tokens.get(number)
        if first_token != second_token:
            differences.append(DifferentToken(number, first_token, second_token))
    return differences


def _tokens_by_id(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """Return the tokens by id; if several have one id, the first in the alphabet."""
    return {number: token for token, number in sorted(vocabulary.items(), reverse=True)}


def describe_differences(
    different: Sequence[DifferentToken], first: str, second: str, total: int
) -> str:
    """Return how many tokens differ, and the first ones."""
    (number, first_token, second_token), *others = different[:MAX_TOKENS_SHOWN]
    examples = [
        f"id {number} is {_quote(first_token)} in {first} and {_quote(second_token)} in {second}"
    ]
    for number, first_token, second_token in others:
        examples.append(f"{number} is {_quote(first_token)} and {_quote(second_token)}")
    if len(different) > MAX_TOKENS_SHOWN:
        examples.append("...")
    return f"{len(different):,} of {total:,} tokens differ ({', '.join(examples)})"


def _quote(token: str | None) -> str:
    return "unused" if token is None else repr(token)


def vocabulary_lines(vocabulary: Mapping[str, int]) -> bytes:
    """Return the contents of ``vocab.txt``: one token a line, in the order of the ids."""
    lines = [""] * (1 + max(vocabulary.values()))
    for token, number in vocabulary.items():
        lines[number] = token
    return "".join(f"{line}\n" for line in lines).encode()
