"""Outline of a model: its modules, with numbers of parameters, from the rules for its weights."""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from zoo.weights.rules import TensorMapping


class ModuleLine(NamedTuple):
    """A module, or several of the same size in a row."""

    names: Sequence[str]  # paths from the model, such as ``layers.0`` and ``layers.1``
    parameters: int  # number of parameters of each; tied ones count where they are stored

    @property
    def name(self) -> str:
        """The path, with a range of indices for several modules: ``layers.0`` to ``11``."""
        last = self.names[-1].rpartition(".")[2]
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]}\N{EN DASH}{last}"


def outline(entries: Iterable[TensorMapping]) -> list[ModuleLine]:
    """Return the modules that the tensors of a model belong to, in the order of the rules."""
    # Lists of modules, and modules that have such lists, are given by their children.
    tensors = [(entry.target.split("."), math.prod(entry.shape)) for entry in entries]
    lists = {
        ".".join(parts[:k]) for parts, _ in tensors for k, p in enumerate(parts) if p.isdecimal()
    }
    sizes: dict[str, int] = {}
    for parts, size in tensors:
        k = 1
        while k < len(parts) and any(
            name == ".".join(parts[:k]) or name.startswith(".".join([*parts[:k], ""]))
            for name in lists
        ):
            k += 1
        name = ".".join(parts[:k])
        sizes[name] = sizes.get(name, 0) + size
    # the modules of a list, whose names end in an index, are a group if they have the same size
    groups = groupby(sizes, key=lambda name: (re.sub(r"\.\d+$", "", name), sizes[name]))
    return [ModuleLine([*names], size) for (_, size), names in groups]
