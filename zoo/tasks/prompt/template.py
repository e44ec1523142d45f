"""Templates of prompts, and the words that stand for labels in them."""

import os.path
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import UsageError, did_you_mean
from zoo.io.files import decode_text, read_regular
from zoo.io.json import parse_json
from zoo.io.limits import MAX_CONFIG_LABELS, MAX_YAML_BYTES

TEXT = "text"
PAIR = "text_pair"
LABEL = "label"
RATIONALE = "rationale"
SLOTS = (TEXT, PAIR, LABEL, RATIONALE)
EXAMPLE = "{text} It was {label}."


@dataclass(frozen=True)
class Prompt:
    """A template with texts in its slots."""

    text: str
    spans: Mapping[str, tuple[int, int]]  # Slot -> start and end in ``text``, in characters.

    def before(self, slot: str) -> str:
        """Return the part before a slot; all of it without that slot."""
        if slot not in self.spans:
            return self.text
        start, _ = self.spans[slot]
        return self.text[:start]


@dataclass(frozen=True)
class PromptTemplate:
    """A text with slots ``{text}``, ``{text_pair}``, ``{label}`` and ``{rationale}``.

    Each occurs at most once. A rationale is the chain of thought before an answer.
    """

    source: str  # The text as it was given.
    # Texts, and the slot that follows each; ``None`` at the end.
    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, source: str) -> "PromptTemplate":
        """Return the template of a text; two braces stand for one."""
        try:
            parsed = list(string.Formatter().parse(source))
        except ValueError as error:
            raise UsageError(
                f"the template {source!r:.200} cannot be read: {error}",
                "write {{ and }} for braces that are not slots",
            ) from None
        slots = [name for _, name, _, _ in parsed if name is not None]
        for name in slots:
            if name not in SLOTS:
                all_slots = ", ".join(f"{{{slot}}}" for slot in SLOTS)
                raise UsageError(
                    f"the template has the slot {{{name}}}, which is unknown",
                    did_you_mean(name, SLOTS) or f"slots are {all_slots}",
                )
        if any(format_spec or conversion for _, _, format_spec, conversion in parsed):
            raise UsageError(f"the template {source!r:.200} formats a slot", "only name it")
        repeated_slot = first_repeated(slots)
        if repeated_slot is not None:
            raise UsageError(
                f"the template has the slot {{{repeated_slot}}} twice", "leave one out"
            )
        if TEXT not in slots:
            raise UsageError(
                f"the template {source!r:.200} has no slot {{text}}", f"write it as in {EXAMPLE!r}"
            )
        return cls(source, tuple((text, name) for text, name, _, _ in parsed))

    @classmethod
    def read(cls, value: str) -> "PromptTemplate":
        """Return the template of a file, or of a text with slots."""
        if "{" in value or not os.path.exists(value):
            if "{" not in value and re.fullmatch(r"\S+", value):
                raise UsageError(
                    f"{value} is neither a file nor a template, which has the slot {{text}}",
                    f"write a template such as {EXAMPLE!r}",
                )
            return cls.parse(value)
        path = Path(value)
        content = decode_text(read_regular(path, "template", MAX_YAML_BYTES), path)
        return cls.parse(content.removesuffix("\n"))

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots, in order."""
        return tuple(slot for _, slot in self.parts if slot is not None)

    def require_label(self) -> None:
        """Check that there is a place for the label."""
        if LABEL not in self.slots:
            raise UsageError(
                f"the template {self.source!r:.200} has no slot {{label}}",
                f"write it where the label is, as in {EXAMPLE!r}",
            )

    def require_no_rationale(self) -> None:
        """Check that there is no place for a rationale, which only generated answers have."""
        if RATIONALE in self.slots:
            raise UsageError(
                f"the template {self.source!r:.200} has the slot {{rationale}}",
                "it is for zoo run prompt and zoo eval with --scoring generate",
            )

    @property
    def first_generated_slot(self) -> str:
        """The first slot that a model fills in when it generates: the rationale or the label."""
        for slot in self.slots:
            if slot in (RATIONALE, LABEL):
                return slot
        return LABEL

    @property
    def label_is_last(self) -> bool:
        """Whether no text follows the label, except for punctuation and spaces."""
        if self.slots[-1:] != (LABEL,):
            return False
        last_text, last_slot = self.parts[-1]
        if last_slot is not None:
            return True
        return not re.search(r"\w", last_text)

    def fill(
        self,
        text: str,
        pair: str | None = None,
        label: str = "",
        *,
        rationale: str = "",
        before: str = "",
    ) -> Prompt:
        """Return the prompt of a text, after the text ``before``."""
        values = {TEXT: text, PAIR: pair or "", LABEL: label, RATIONALE: rationale}
        prompt = before
        spans = dict[str, tuple[int, int]]()
        for literal, slot in self.parts:
            prompt += literal
            if slot is not None:
                spans[slot] = (len(prompt), len(prompt) + len(values[slot]))
                prompt += values[slot]
        return Prompt(prompt, spans)


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs again, or ``None``."""
    for number, name in enumerate(names):
        if name in names[:number]:
            return name
    return None


def resolve_label_words(setting: str | Mapping[str, str]) -> dict[str, str]:
    """Return the words that a setting has for labels; raises ``UsageError`` if there are none."""
    if not setting:
        raise UsageError("there are no label words", "give --label-words LABEL=WORD,...")
    if isinstance(setting, str):
        return read_label_words(setting)
    return require_label_words(dict(setting))


def read_label_words(value: str) -> dict[str, str]:
    """Return label -> word from ``LABEL=WORD,...``, words that are labels, or JSON."""
    if value.lstrip().startswith("{"):
        return require_label_words(dict(parse_json(value.encode(), "--label-words")))
    words: dict[str, str] = {}
    for part in value.split(","):
        name, sign, word = part.partition("=")
        label = name.strip()
        if label in words:
            raise UsageError(f"the label {label!r} has two words", "name each label once")
        # A word without a sign is its own label.
        words[label] = word.strip() if sign else label
    return require_label_words(words)


def require_label_words(words: dict[str, str]) -> dict[str, str]:
    """Return label -> word, if there are two labels or more, with different words."""
    for label, word in words.items():
        if not isinstance(word, str) or not word or not label:
            raise UsageError(
                f"the label {label!r} has no word", "write LABEL=WORD, with commas between labels"
            )
    if len(words) < 2:
        (label,) = words or ("none",)
        raise UsageError(
            f"{label!r} is the only label with a word, and a choice needs two",
            "write them as in positive=great,negative=terrible",
        )
    if len(words) > MAX_CONFIG_LABELS:
        raise UsageError(
            f"there are {len(words):,} label words", f"give at most {MAX_CONFIG_LABELS:,}"
        )
    for label, word in words.items():
        for other_label, other_word in words.items():
            if other_label != label and other_word == word:
                raise UsageError(
                    f"the labels {label!r} and {other_label!r} have the same word {word!r}",
                    "give each label a word of its own",
                )
    return words


def word_of(words: Mapping[str, str], label: str, location: str) -> str:
    """Return the word of a label; without words, the label itself."""
    if not words:
        return label
    if label not in words:
        raise UsageError(
            f"{location} has the label {label!r}, which has no word",
            f"label words are for {', '.join(words)}",
        )
    return words[label]


def find_label(words: Mapping[str, str], generated: str) -> str | None:
    """Return the label whose word a generated text begins with, the longest of several."""
    text = generated.strip().casefold()
    matches = [label for label, word in words.items() if text.startswith(word.strip().casefold())]
    return max(matches, key=lambda label: len(words[label]), default=None)
