"""Input records of tasks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.io.limits import MAX_TEXT_CHARACTERS

SPLIT = "split it into several texts"


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Keys of the texts of a record, in JSON lines and in results."""

    text: str | None = "text"  # key of a single text; ``None`` if every record is a pair of texts
    pair: tuple[str, str] = ("text", "text_pair")  # keys of the two texts of a pair

    def renamed(self, text: str | None, pair: str | None) -> "RecordKeys":
        """Return keys with other names of the first and the second text; ``None`` keeps one.

        With a name of the second text, every record is a pair.
        """
        if text is None and pair is None:
            return self
        names = (text or self.pair[0], pair or self.pair[1])
        return RecordKeys(None if pair or self.text is None else text, names)

    @property
    def example(self) -> str:
        """Description of a JSON line, for messages."""
        names = self.pair if self.text is None else (self.text,)
        return f"each line is an object such as {dump_json(dict.fromkeys(names, '...'))}"

    def names(self, value: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the keys of the texts that an object has to have."""
        is_pair = self.text is None or value.get(self.pair[1]) is not None
        return self.pair if is_pair else (self.text or "",)

    def missing(self, value: Mapping[str, Any]) -> str | None:
        """Return the first key that an object lacks, or ``None``."""
        return next((name for name in self.names(value) if name not in value), None)

    def texts(self, record: "TextExample") -> dict[str, str]:
        """Return key -> text of a record."""
        if record.pair is None:
            return {self.text or self.pair[0]: record.text}
        return dict(zip(self.pair, (record.text, record.pair), strict=True))

    def columns(self, record: "TextExample") -> dict[str, Any]:
        """Return what results repeat of a record: its texts and its other keys.

        They have the names and the order of the record's table.
        """
        if record.columns is None:
            return {**self.texts(record), **record.extra}
        return {**record.columns, **record.extra}


@dataclass(frozen=True, slots=True)
class Passage:
    """The part of a document that a record is."""

    document: str  # the whole text
    number: int  # number of the document in the input, from 0
    start: int  # first character of the passage in the document
    end: int  # the character after its last one
    is_first: bool = True  # whether no passage of the document precedes it
    is_last: bool = True  # whether none follows


@dataclass(frozen=True, slots=True)
class TextExample:
    """One input record."""

    text: str
    pair: str | None = None  # second text of a pair, or ``None``
    # other keys of a JSON line, copied to the output
    extra: Mapping[str, Any] = field(default_factory=dict)
    location: str = "a text"  # name for messages, such as ``notes.jsonl:12``
    # texts and other keys as the input has them, in its order; ``None`` for texts without names
    columns: Mapping[str, Any] | None = None
    passage: Passage | None = None  # the place of the text in a document, if it is a part of one


def as_records(texts: Iterable[str | tuple[str, str]]) -> Iterator[TextExample]:
    """Return records of texts or pairs of texts; messages number them from 1."""
    if isinstance(texts, str):
        raise UsageError("a single string was given for texts", "put it into a list: [text]")
    for number, item in enumerate(texts, 1):
        location = f"text {number}"
        if isinstance(item, tuple) and len(item) == 2:
            yield TextExample(
                validate_text(item[0], location),
                validate_text(item[1], location),
                location=location,
            )
        else:
            yield TextExample(validate_text(item, location), location=location)


class LongTextError(UsageError):
    """A text of more characters than are read."""


def validate_text(text: Any, location: str) -> str:
    """Return the text after checking it; raises ``UsageError``."""
    if not isinstance(text, str):
        raise UsageError(f"{location} is of type {type(text).__name__}, not a string")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise LongTextError(
            f"{location} has {len(text):,} characters, and at most {MAX_TEXT_CHARACTERS:,} are "
            "read",
            SPLIT,
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{location}: character {error.start + 1} is not valid Unicode"
            ) from None
    return text
