"""How a family takes over the weights of a model that reads shorter texts."""

from collections.abc import Mapping
from dataclasses import dataclass

from zoo.families.config import Config


@dataclass(frozen=True)
class LongerModel:
    """A model for longer texts that begins with the weights of another one.

    Attributes:
        config: its configuration.
        tables: name of a table of learned positions, which both models have -> number of its rows
            before the position of a text's first token.
        initial: name of a tensor that only the longer model has -> tensor of the other model whose
            values it begins with.
        window: number of tokens up to which both models compute the same.
    """

    config: Config
    tables: Mapping[str, int]
    initial: Mapping[str, str]
    window: int
