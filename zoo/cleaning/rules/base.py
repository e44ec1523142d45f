"""The base class of rules."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import msgspec


class Removed(NamedTuple):
    """The result of a rule that drops a text.

    Attributes:
        reason: why, in words joined by hyphens, which the report counts.
    """

    reason: str


# Returns the text, which may have fewer lines, or that it is dropped.
Cleaner = Callable[[str], str | Removed]
# Counts a line that a rule removes from a text; the argument is the reason.
CountLine = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class CleaningRule(ABC):
    """A rule that texts are cleaned by.

    A subclass is a frozen dataclass, whose fields are its settings, such as ``--set
    c4.min_num_sentences=5``. ``__post_init__`` may raise ``ValueError``.

    Attributes:
        name: value of ``--rule``.
        summary: what the rule drops, in a few words, for help.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the rule with settings.

        Raises:
            msgspec.ValidationError, ValueError: a setting has a wrong type or value.
        """
        return msgspec.convert(dict(settings), cls)

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """Return the names of the settings."""
        return tuple(field.name for field in fields(cls))

    @property
    def files(self) -> tuple[str, ...]:
        """Files that the rule reads, whose contents the result depends on."""
        return ()

    @abstractmethod
    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        """Return the function that is applied to each text.

        It is called once in each process, which may load what the function needs. The function
        must depend on nothing but the text.

        Args:
            language: code of the language whose words and sentences are counted, such as ``en``.
            count_line: to be called with a reason for each line that is removed.
        """
