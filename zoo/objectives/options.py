"""Options of an objective or task, and their conversion from settings."""

from collections.abc import Mapping
from typing import Any

import msgspec

from zoo.errors import UsageError, did_you_mean


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the options of an objective."""

    def check_fraction(self, name: str, *, ends: bool = False) -> None:
        """Check that a field is a fraction.

        Args:
            name: name of the field.
            ends: accept 0 and 1.

        Raises:
            ValueError: the value is not between 0 and 1.
        """
        value = getattr(self, name)
        if not (0 < value < 1 or (ends and value in (0, 1))):
            raise ValueError(f"{name} is {value}, which is not between 0 and 1")


def parse_options(
    options_type: type[Options],
    values: Mapping[str, Any],
    name: str,
    kind: str = "objective",
) -> Options:
    """Convert options of an objective or task to their type."""
    known = [field.encode_name for field in msgspec.structs.fields(options_type)]
    for option in values:
        if option not in known:
            raise UsageError(
                f"the {kind} {name} has no option {option!r}",
                did_you_mean(option, known) or f"it has {', '.join(known) or 'none'}",
            )
    try:
        return msgspec.convert(dict(values), options_type)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the {kind} {name}: {error}") from error
