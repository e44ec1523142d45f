"""Reader of labelled words: CoNLL and CoNLL-U files, and tables with lists of words and labels."""

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from zoo.data.readers.documents import iter_files
from zoo.data.readers.labelled import Columns, label_name, text_hash
from zoo.data.readers.parquet import PARQUET
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.tables import JSON_LINES, Row, read_rows, require_text, suffix_of
from zoo.data.readers.text_io import read_lines
from zoo.errors import UsageError
from zoo.io.numbers import is_number
from zoo.metrics.entities import BEGIN, INSIDE, LAST, ONE_TYPE, OUTSIDE, PREFIXES, split_tag

LOG = logging.getLogger("zoo")
CONLLU = ".conllu"
CONLLU_COLUMNS = (
    "id",
    "form",
    "lemma",
    "upos",
    "xpos",
    "feats",
    "head",
    "deprel",
    "deps",
    "misc",
)
# Scheme -> prefixes of the last word of a span, of a span of one word, and inside if not ``I``.
SCHEMES = {"BIOES": ("E", "S"), "BILOU": ("L", "U"), "BMES": ("E", "S", "M")}


@dataclass(frozen=True, slots=True)
class WordsSample:
    """A sentence of labelled words."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    location: str  # File and line, for messages.
    lines: Sequence[int] = ()  # Line of each word, where each has one.

    @property
    def hash(self) -> float:
        """Hash that splits data; sentences with the same words are on one side."""
        return text_hash(*self.words)

    def word_location(self, number: int) -> str:
        """Return the file and line of a word by its index."""
        if not self.lines:
            return f"{self.location}, word {number + 1}"
        return f"{self.location.rpartition(':')[0]}:{self.lines[number]}"


def read_words(
    paths: Iterable[str | Path], columns: Columns, problems: RowProblems | None = None
) -> list[WordsSample]:
    """Return the sentences of files.

    JSON lines and Parquet have a list of words and a list of labels in each row. Any other file is
    in CoNLL columns, separated by tabs or spaces: a word in each line, a blank line after each
    sentence. Columns are counted from 1; by default words are in the first and labels in the last
    one. In CoNLL-U files, ``.conllu``, columns also have the names of that format, and default to
    form and universal part of speech. There, lines with ``#`` are comments, and words that the
    annotation splits or adds are left out. A sentence with an error is left out as a whole.
    """
    return list(iter_words(paths, columns, problems))


def iter_words(
    paths: Iterable[str | Path], columns: Columns, problems: RowProblems | None = None
) -> Iterator[WordsSample]:
    """Yield the sentences of files; see ``read_words``."""

    def read(file: Path, file_problems: RowProblems) -> Iterator[WordsSample]:
        suffix = suffix_of(file)
        if suffix not in (*JSON_LINES, PARQUET):
            is_universal = suffix == CONLLU
            text, label = _column_numbers(file, columns, universal=is_universal)
            sentences = sentence_lines(file, universal=is_universal)
            return file_problems.checked(sentences, partial(_sentence, file, text, label))
        rows = read_rows(file, [columns.text, columns.label], file_problems)
        samples = file_problems.checked(rows, partial(_lists, columns=columns))
        return (sample for sample in samples if sample.words)

    return iter_files(paths, read, problems, "words", "give labelled words")


def _lists(row: Row, *, columns: Columns) -> WordsSample:
    location = row.location
    words = row.values[columns.text]
    labels = row.values[columns.label]
    for name, value in ((columns.text, words), (columns.label, labels)):
        if not isinstance(value, list):
            row.require_type(name, "list", value)
            raise RowError(f"{location}: {name} is {value!r:.80}, not a list", "give lists")
    if len(words) != len(labels):
        raise RowError(f"{location} has {len(words)} words and {len(labels)} labels")
    return WordsSample(
        tuple(require_text(word, f"{location}: {columns.text}") for word in words),
        tuple(label_name(label, location) for label in labels),
        location,
    )


def sentence_lines(file: Path, *, universal: bool) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the lines of each sentence, as their numbers and cells; see ``read_words``."""
    lines = list[tuple[int, list[str]]]()
    for number, line in enumerate(read_lines(file, rows=True), 1):
        if universal and line.startswith("#"):
            continue
        if not line or line.startswith("-DOCSTART-"):
            if lines:
                yield lines
            lines = []
            continue
        if "\t" in line:
            cells = line.split("\t")
        else:
            # A word may contain other white space, such as the thin space of a number.
            cells = [cell for cell in line.split(" ") if cell]
        # Words and labels repeat, and a sentence may be as long as the file.
        cells = list(map(sys.intern, cells))
        # Words that the annotation splits or adds have numbers such as 3-4 or 5.1.
        if not universal or is_number(cells[0]):
            lines.append((number, cells))
    if lines:
        yield lines


def _sentence(
    file: Path, text: int, label: int, lines: Sequence[tuple[int, list[str]]]
) -> WordsSample:
    words = list[str]()
    labels = list[str]()
    label_column = "the last" if label < 0 else str(label + 1)
    for number, cells in lines:
        if len(cells) <= max(text, label, 1):
            raise RowError(
                f"{file}:{number} has {len(cells)} columns, and word and label are in "
                f"{text + 1} and {label_column}",
                "correct the line, or name the columns by their numbers",
            )
        if "\0" in cells[text]:
            raise RowError(f"{file}:{number} has a NUL character")
        words.append(cells[text].strip(" "))
        labels.append(label_name(cells[label], f"{file}:{number}"))
    first_line, _ = lines[0]
    last_line, _ = lines[-1]
    numbers: Sequence[int] = range(first_line, last_line + 1)
    # A range takes less memory than the numbers, which have gaps where lines are left out.
    if len(numbers) != len(lines):
        numbers = tuple(number for number, _ in lines)
    return WordsSample(tuple(words), tuple(labels), f"{file}:{first_line}", numbers)


def _column_numbers(file: Path, columns: Columns, *, universal: bool) -> tuple[int, int]:
    """Return the indices of the columns of words and labels, -1 for the last one."""
    names = CONLLU_COLUMNS if universal else ()
    defaults = {"text": 1, "label": 3} if universal else {"text": 0, "label": -1}

    def number(name: str, setting: str) -> int:
        if name == setting:  # The default of the setting.
            return defaults[setting]
        if is_number(name) and int(name) > 0:
            return int(name) - 1
        if name.lower() in names:
            return names.index(name.lower())
        hint = "columns of this file are counted from 1"
        if names:
            hint += f", or named: {', '.join(names)}"
        raise UsageError(f"{file} has no column {name!r}", hint)

    return number(columns.text, "text"), number(columns.label, "label")


def is_iob(labels: Iterable[str]) -> bool:
    """Return whether labels mark spans by ``B-`` and ``I-``, or by these letters without types."""
    distinct_labels = set(labels)
    if not marks_spans(distinct_labels):
        return False
    for name in distinct_labels:
        if name not in ("B", "I", OUTSIDE) and not name.startswith(("B-", "I-")):
            return False
    return True


def marks_spans(labels: Iterable[str]) -> bool:
    """Return whether labels mark spans, in the scheme IOB or one of ``SCHEMES``.

    Prefixes come before or after the type. Labels without a type are those of one scheme, with
    ``O``; otherwise letters such as ``S`` and ``L`` may be anything.
    """
    distinct_labels = set(labels)
    if len(distinct_labels) < 2:
        return False
    untyped_labels = distinct_labels.intersection(PREFIXES)
    if untyped_labels:
        has_types = untyped_labels != distinct_labels - {OUTSIDE}
        if has_types or "I" not in distinct_labels or OUTSIDE not in distinct_labels:
            return False
    prefixes = {split_tag(name)[0] for name in distinct_labels}
    if not prefixes & {OUTSIDE, "B", "I"}:
        return False
    iob = {OUTSIDE, "B", "I"}
    return prefixes <= iob or any(prefixes <= iob.union(ends) for ends in SCHEMES.values())


def repair_iob(labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels of the scheme IOB2, in which every span begins with ``B-``.

    ``I-`` at the beginning of a span, as in the scheme IOB1, becomes ``B-``. In ``SCHEMES``, the
    last word of a span becomes ``I-``, and a span of one word ``B-``. A prefix after the type moves
    before it.
    """
    repaired = list[str]()
    previous = OUTSIDE
    previous_type = ""
    for name in labels:
        prefix, entity_type = split_tag(name)
        if prefix in ("", OUTSIDE):
            repaired.append(name)
        else:
            is_open = previous in (*BEGIN, *INSIDE) and previous_type == entity_type
            position = "I" if is_open and prefix in (*INSIDE, *LAST) else "B"
            is_bare = entity_type == ONE_TYPE and name in PREFIXES
            label = position if is_bare else f"{position}-{entity_type}"
            repaired.append(name if name == label else sys.intern(label))
        previous = prefix
        previous_type = entity_type
    return tuple(repaired)


class IobRepair:
    """Repairs the labels of samples from some files, see ``repair_iob``, and counts changes."""

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._paths = list(paths)
        self._began = 0
        self._moved = 0
        self._prefixes = Counter[str]()

    @property
    def has_changes(self) -> bool:
        """Whether a label was changed."""
        return bool(self._began or self._moved or self._prefixes)

    def __call__(self, sample: WordsSample) -> WordsSample:
        """Return a sample with repaired labels."""
        labels = repair_iob(sample.labels)
        for label, repaired_label in zip(sample.labels, labels, strict=True):
            if label == repaired_label:
                continue
            prefix, _ = split_tag(label)
            if label != prefix and not label.startswith(f"{prefix}-"):
                self._moved += 1
            elif prefix == "I":
                self._began += 1
            if prefix not in ("B", "I"):
                self._prefixes[prefix] += 1
        return replace(sample, labels=labels)

    def warn(self) -> None:
        """Log how many labels were changed so far, if any."""
        files = ", ".join(map(str, self._paths))
        if self._began:
            LOG.warning(
                "warning: %s spans of %s began with I-, and now begin with B-",
                f"{self._began:,}",
                files,
            )
        if self._moved:
            LOG.warning(
                "warning: %s labels of %s end with B, I or another prefix, and now begin with it",
                f"{self._moved:,}",
                files,
            )
        for scheme, ends in SCHEMES.items():
            if self._prefixes.keys() and self._prefixes.keys() <= set(ends):
                LOG.warning(
                    "warning: %s labels of %s are in the scheme %s, with %s, and now begin with "
                    "I- or B-",
                    f"{self._prefixes.total():,}",
                    files,
                    scheme,
                    " and ".join(f"{prefix}-" for prefix in ends),
                )
                break


def repair_samples(
    samples: Sequence[WordsSample], paths: Iterable[str | Path]
) -> list[WordsSample]:
    """Return samples with repaired labels, see ``repair_iob``, and warn of changes."""
    repair = IobRepair(paths)
    repaired_samples = list(map(repair, samples))
    repair.warn()
    return repaired_samples


def word_starts(words: Sequence[str]) -> list[int]:
    """Return the position of each word in the text that joins them by spaces, in characters."""
    starts = []
    position = 0
    for word in words:
        starts.append(position)
        position += len(word) + 1
    return starts


def first_tokens(
    words: Sequence[str], offsets: Sequence[tuple[int, int]], special: Sequence[bool]
) -> dict[int, int]:
    """Map the index of each word with tokens to its first token; spaces join the words."""
    tokens: dict[int, int] = {}
    for token, word in words_of_tokens(" ".join(words), word_starts(words), offsets, special):
        tokens.setdefault(word, token)
    return tokens


def words_of_tokens(
    text: str,
    starts: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    special: Sequence[bool],
) -> Iterator[tuple[int, int]]:
    """Yield the indices of each token that is not special and of its word.

    Args:
        text: the text.
        starts: positions of the words, in characters.
        offsets: start and end of each token, in characters.
        special: whether each token is special.
    """
    import bisect

    for token, (start, end) in enumerate(offsets):
        if special[token] or start == end:
            continue
        # Some tokens include the space before them.
        while start < end - 1 and text[start].isspace():
            start += 1
        yield token, bisect.bisect_right(starts, start) - 1
