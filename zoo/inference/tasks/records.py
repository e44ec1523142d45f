"""What a task works on: a text, perhaps with a second one, and what came along with it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zoo.errors import UsageError
from zoo.io.limits import MAX_TEXT_CHARACTERS

SPLIT = "split it into several texts"


@dataclass(frozen=True, slots=True)
class TextExample:
    """One input.

    Attributes:
        text: the text.
        pair: a second text that the model reads after the first, or ``None``.
        extra: keys of a JSON record that are carried to the output unchanged.
        location: how messages name it, such as ``notes.jsonl:12``.
    """

    text: str
    pair: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    location: str = "a text"


def as_records(texts: Iterable[str | tuple[str, str]]) -> Iterator[TextExample]:
    """Turn plain texts, or pairs of texts, into records; they are counted from 1 in messages.

    Raises:
        UsageError: something is no text, or holds half of a surrogate pair, which no encoding
            can write.
    """
    if isinstance(texts, str):
        raise UsageError("a single string was given for texts", "put it into a list: [text]")
    for number, item in enumerate(texts, 1):
        where = f"text {number}"
        if isinstance(item, tuple) and len(item) == 2:
            yield TextExample(
                validate_text(item[0], where), validate_text(item[1], where), location=where
            )
        else:
            yield TextExample(validate_text(item, where), location=where)


def validate_text(text: Any, where: str) -> str:
    """Return a text that can be tokenized.

    Raises:
        UsageError: it is not a string, or not a valid one.
    """
    if not isinstance(text, str):
        raise UsageError(f"{where} is of type {type(text).__name__}, not a string")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UsageError(
            f"{where} has {len(text):,} characters, and at most {MAX_TEXT_CHARACTERS:,} are read",
            SPLIT,
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{where}: character {error.start + 1} is not valid Unicode") from None
    return text
