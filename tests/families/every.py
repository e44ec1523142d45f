"""Which of all families a test runs by default: one for each kind of block.

A test that runs for every family repeats itself where two families are made of the same blocks.
``every_family`` returns all of them as parameters, and leaves those whose blocks another family has
to ``make test-all``. A new family needs no line here, unless it brings a block of its own.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from zoo.plugins import all_families

# family -> the test class of its kit; with several versions, the latest one
REPRESENTATIVES: Mapping[str, str] = MappingProxyType(
    {
        "bert": "TestBert",  # encoder: norms after the sums, positions in a table, a pooler
        "modernbert": "TestModernBert",  # norms before, rotary positions, local attention, gates
        "deberta": "TestThird",  # disentangled attention, one table of positions for all layers
        "gpt": "TestGpt2",  # decoder with a cache of keys and values
        "t5": "TestT5",  # two stacks, relative positions, norms without a mean
        "elmo": "TestElmo",  # recurrent layers over characters
    }
)


def every_family(
    names: Iterable[str] | None = None, *, default: Collection[str] = REPRESENTATIVES
) -> list[Any]:
    """Return names of families as parameters of a test, with the mark ``long`` for most.

    Args:
        names: the families that the test is for; all by default.
        default: those that run without the mark, fewer where a test concerns fewer blocks.
    """
    return [
        pytest.param(name, marks=() if name in default else pytest.mark.long)
        for name in (all_families() if names is None else names)
    ]


def families_with(head: str) -> list[str]:
    """Return the families that have a head."""
    return [name for name, family in all_families().items() if head in family.heads()]


def representative(names: Iterable[str]) -> str:
    """Return the family of a group that stands for it: the first that represents blocks, if any."""
    group = list(names)
    return next((name for name in REPRESENTATIVES if name in group), group[0])
