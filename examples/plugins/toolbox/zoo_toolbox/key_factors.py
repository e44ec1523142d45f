"""An adapter."""

from typing import ClassVar

from zoo.adapters.ia3 import IA3


class KeyFactors(IA3, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """(IA)³ of keys only."""

    name: ClassVar[str] = "key-factors"
    target_modules: tuple[str, ...] | str | None = ("key",)
    feedforward_modules: tuple[str, ...] | None = ()
