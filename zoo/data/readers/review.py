"""What a person should know about labelled data: counts of labels, empty texts, repeated rows."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from zoo.data.readers.labelled import Sample, label_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_EXAMPLES_SHOWN = 3  # Places that a warning names.
MAX_LABELS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What is reviewed of a sample."""

    texts: Sequence[str]
    # What samples with the same texts must have in common; ``None`` if several answers are right.
    answer: tuple[Any, ...] | None
    labels: Sequence[str] = ()  # Names of classes to count.
    # What repeated samples have in common in addition to their texts; by default the answer.
    identity: tuple[Any, ...] = ()


def review_class(sample: Sample) -> Reviewed:
    """Return what is reviewed of a text, or pair of texts, with a class."""
    name = label_name(sample.label, sample.location)
    return Reviewed(sample.texts, (name,), (name,))


class DataReview:
    """Reviews samples one at a time, and keeps 16 bytes of each."""

    def __init__(self) -> None:
        self.labels = Counter[str]()
        self._text_hashes = array("q")
        self._row_hashes = array("q")
        self._has_answers = False
        self._blank_count = 0
        self._first_blank = ""  # Location of the first blank text.

    def add(self, sample: Reviewed, location: str) -> None:
        """Add a sample."""
        self.labels.update(map(str, sample.labels))
        if not all(map(str.strip, sample.texts)):
            self._blank_count += 1
            self._first_blank = self._first_blank or location
        if sample.answer is not None:
            self._has_answers = True
        identity = sample.identity or sample.answer
        texts = "\0".join(sample.texts)
        self._text_hashes.append(_hash(texts))
        self._row_hashes.append(_hash(f"{texts}\0\0{identity!r}"))

    def warnings(
        self, which: str, locate: Callable[[Collection[int]], Mapping[int, str]]
    ) -> list[str]:
        """Return what a person should know about the data."""
        lines: list[str] = []
        if self._blank_count:
            lines.append(
                f"{self._blank_count:,} {which} have an empty text; the first is "
                f"{self._first_blank}"
            )
        text_hashes = _as_numpy(self._text_hashes)
        row_hashes = _as_numpy(self._row_hashes)
        repeats = _find_repeats(row_hashes, row_hashes, equal=True)
        if repeats:
            places = _describe_places(repeats, locate)
            lines.append(f"{len(repeats):,} {which} repeat others: {places}")
        contradictions = []
        if self._has_answers:
            contradictions = _find_repeats(text_hashes, row_hashes, equal=False)
        if contradictions:
            places = _describe_places(contradictions, locate)
            lines.append(
                f"{len(contradictions):,} {which} have the text of another one and a different "
                f"label: {places}"
            )
        return [*lines, *similar_labels(self.labels)]

    def shared_with(self, other: "DataReview") -> int:
        """Return how many samples have the texts of a sample of another review."""
        import numpy as np

        hashes = _as_numpy(self._text_hashes)
        other_hashes = _as_numpy(other._text_hashes)
        return int(np.isin(hashes, other_hashes).sum())


def similar_labels(labels: Iterable[str]) -> list[str]:
    """Return warnings of labels that differ in case only."""
    groups = defaultdict[str, list[str]](list)
    for name in labels:
        groups[name.casefold()].append(name)
    warnings = []
    for group in groups.values():
        if len(group) > 1:
            names = ", ".join(map(repr, sorted(group)))
            warnings.append(f"the labels {names} differ in case only: write them alike")
    return warnings


def count_labels(labels: Mapping[str, int], order: Sequence[str] = ()) -> str:
    """Return labels with their numbers of samples: ``no (12), yes (8)``."""
    names = [*order] or sorted(labels, key=lambda name: (-labels[name], name))
    parts = [f"{name} ({labels.get(name, 0):,})" for name in names[:MAX_LABELS_SHOWN]]
    if len(names) > MAX_LABELS_SHOWN:
        parts.append(f"... ({len(names):,} labels in all)")
    return ", ".join(parts)


def _hash(text: str) -> int:
    return int.from_bytes(blake3(text.encode(errors="surrogatepass")).digest(8), signed=True)


def _as_numpy(values: "array[int]") -> "NDArray[np.int64]":
    import numpy as np

    if not values:  # An empty buffer cannot be an array.
        return np.zeros(0, np.int64)
    return np.frombuffer(values, np.int64)


def _find_repeats(
    keys: "NDArray[np.int64]", rows: "NDArray[np.int64]", *, equal: bool
) -> list[tuple[int, int]]:
    """Return sample and earlier sample with the same key, whose rows are equal or differ."""
    import numpy as np

    order = keys.argsort(kind="stable")
    has_same_key = keys[order][1:] == keys[order][:-1]
    has_same_row = rows[order][1:] == rows[order][:-1]
    is_repeat = has_same_key & (has_same_row == equal)
    pairs = np.stack([order[1:][is_repeat], order[:-1][is_repeat]], axis=1)
    in_order = pairs[pairs[:, 0].argsort()]
    return [(int(later), int(earlier)) for later, earlier in in_order]


def _describe_places(
    pairs: Sequence[tuple[int, int]], locate: Callable[[Collection[int]], Mapping[int, str]]
) -> str:
    """Return the locations of the first pairs of samples."""
    examples = pairs[:MAX_EXAMPLES_SHOWN]
    numbers = {number for pair in examples for number in pair}
    places = locate(numbers)
    parts = [f"{places[later]} and {places[earlier]}" for later, earlier in examples]
    if len(pairs) > len(examples):
        parts.append("...")
    return ", ".join(parts)
