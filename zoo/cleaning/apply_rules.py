"""The step that applies rules, and counts what they drop."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.cleaning.records import EXAMPLES, RemovedExample, RuleReport
from zoo.cleaning.rules.base import CleaningRule, Removed
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from datatrove.data import Document

EXAMPLE_CHARACTERS = 200


class ApplyRules:
    """A step of a pipeline that applies rules in their order.

    Args:
        rules: the rules.
        language: code of the language whose words and sentences are counted.
        folder: directory of the reports, one for each task.
    """

    def __init__(self, rules: Sequence[CleaningRule], language: str, folder: Path) -> None:
        self.rules = list(rules)
        self.language = language
        self.folder = folder

    def __call__(
        self, data: "Iterable[Document]", rank: int = 0, world_size: int = 1
    ) -> "Iterator[Document]":
        """Yield the texts of a task that the rules leave, and write its report."""
        applied_rules = [_AppliedRule(rule, self.language) for rule in self.rules]
        for document in data:
            if all(rule.apply(document) for rule in applied_rules):
                yield document
        self.folder.mkdir(parents=True, exist_ok=True)
        reports = [rule.report for rule in applied_rules]
        atomic_write(report_path(self.folder, rank), encode_json(reports))


class _AppliedRule:
    """A rule with its report in one task."""

    def __init__(self, rule: CleaningRule, language: str) -> None:
        self.report = RuleReport(rule=rule.name)
        self._clean = rule.make_cleaner(language, self._count_line)

    def _count_line(self, reason: str) -> None:
        self.report.lines[reason] = self.report.lines.get(reason, 0) + 1

    def apply(self, document: Any) -> bool:
        """Clean a text; return whether it is left."""
        self.report.texts += 1
        outcome = self._clean(document.text)
        if isinstance(outcome, Removed):
            reason = outcome.reason
            self.report.dropped[reason] = self.report.dropped.get(reason, 0) + 1
            examples = self.report.examples.setdefault(reason, [])
            if len(examples) < EXAMPLES:
                examples.append(_example(document.id, document.text))
            return False
        if outcome != document.text and len(self.report.line_examples) < EXAMPLES:
            removed_line = _removed_line(document.text, outcome)
            if removed_line:
                self.report.line_examples.append(_example(document.id, removed_line))
        document.text = outcome
        return True


def _example(text_id: str, text: str) -> RemovedExample:
    return RemovedExample(id=text_id, text=text[:EXAMPLE_CHARACTERS])


def _removed_line(text: str, cleaned: str) -> str | None:
    """Return the first line of a text that is not left."""
    lines = set(cleaned.split("\n"))
    for line in text.splitlines():
        if line.strip() and line.strip() not in lines:
            return line.strip()
    return None


def report_path(folder: Path, task: int) -> Path:
    """Return the file with the report of a task."""
    return folder / f"{task:05d}.json"
