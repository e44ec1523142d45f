"""``cleaning.json``, the record of cleaned texts: what was cleaned, and what was dropped."""

from pathlib import Path
from typing import Any

import msgspec

from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import read_record
from zoo.io.json import JsonStruct
from zoo.io.output.overwrite import CLEANING_RECORD

TEXTS = "texts"  # the directory of the parts in the output
EXAMPLES = 3  # examples of what was dropped, for each reason
REMEDY = "clean again"


class RemovedExample(JsonStruct):
    """A text that a rule dropped.

    Attributes:
        id: file and number of the text.
        text: how it begins.
    """

    id: str
    text: str


class RuleReport(JsonStruct):
    """What a rule dropped.

    Attributes:
        rule: name of the rule.
        texts: number of texts that it read.
        dropped: reason -> number of texts that were dropped.
        lines: reason -> number of lines that were removed from other texts.
        examples: reason -> texts that were dropped, the first ones.
        line_examples: lines that were removed, the first ones.
    """

    rule: str
    texts: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    lines: dict[str, int] = msgspec.field(default_factory=dict)
    examples: dict[str, list[RemovedExample]] = msgspec.field(default_factory=dict)
    line_examples: list[RemovedExample] = msgspec.field(default_factory=list)

    def add(self, other: "RuleReport") -> None:
        """Add what the rule dropped in another task."""
        self.texts += other.texts
        for counts, other_counts in ((self.dropped, other.dropped), (self.lines, other.lines)):
            for reason, count in other_counts.items():
                counts[reason] = counts.get(reason, 0) + count
        for reason, examples in other.examples.items():
            merged = self.examples.get(reason, []) + examples
            self.examples[reason] = merged[:EXAMPLES]
        self.line_examples = (self.line_examples + other.line_examples)[:EXAMPLES]


class RuleSettings(JsonStruct):
    """A rule of a plan."""

    name: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class CleaningPlan(JsonStruct):
    """What the result depends on.

    Attributes:
        zoo: version of the format.
        created_by: version of the package.
        sources: name of a file -> its digest, in their order.
        parts: number of parts that the texts are cut into; 0 in records of earlier versions.
        rules: the rules, in their order.
        rule_files: name of a file that a rule reads -> its digest.
        deduplications: names of the deduplications, in their order.
        reader: separation of files into texts.
        language: code of the language.
    """

    zoo: int
    created_by: str
    sources: dict[str, FileDigest]
    rules: list[RuleSettings]
    rule_files: dict[str, FileDigest]
    deduplications: list[str]
    reader: dict[str, Any]
    language: str
    parts: int = 0


class StageCounts(JsonStruct):
    """How much text is left after the rules, or after a deduplication.

    Attributes:
        name: ``rules``, or the name of the deduplication.
        texts: number of texts.
        characters: number of their characters.
    """

    name: str
    texts: int
    characters: int


class CleaningRecord(JsonStruct):
    """``cleaning.json``: what was cleaned, and what was dropped.

    Attributes:
        zoo: version of the format.
        created_by: version of the package.
        plan: what the result depends on.
        rules: what each rule dropped.
        stages: how much text was left after the rules and after each deduplication.
        files: name of a file -> its digest, of every other file of the directory.
        digest: BLAKE3 of this file.
    """

    zoo: int
    created_by: str
    plan: CleaningPlan
    rules: list[RuleReport]
    stages: list[StageCounts]
    files: dict[str, FileDigest]
    digest: str


def is_cleaned(path: Path) -> bool:
    """Return whether a directory holds cleaned texts."""
    return (path / CLEANING_RECORD).is_file()


def read_cleaning_record(path: Path) -> CleaningRecord:
    """Read the record of a directory of cleaned texts, and compare it with its digest."""
    return read_record(path / CLEANING_RECORD, CleaningRecord, hint=REMEDY)
