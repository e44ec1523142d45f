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

EXAMPLES = 3  # places that a warning names
SHOWN = 20  # labels that are named


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What is reviewed of a sample."""

    texts: Sequence[str]
    # what samples with the same texts must have in common; ``None`` if several answers are right
    answer: tuple[Any, ...] | None
    labels: Sequence[str] = ()  # names of classes to count
    whole: tuple[Any, ...] = ()  # all of the sample; by default texts and answer


def review_class(sample: Sample) -> Reviewed:
    """Return what is reviewed of a text, or pair of texts, with a class."""
    name = label_name(sample.label, sample.location)
    return Reviewed(sample.texts, (name,), (name,))


class DataReview:
    """Reviews samples one at a time, and keeps 16 bytes of each."""

    def __init__(self) -> None:
        self.labels = Counter[str]()
        self._texts = array("q")
        self._rows = array("q")
        self._judged = False  # some samples have an answer
        self._blank = 0
        self._first_blank = ""

    def add(self, sample: Reviewed, location: str) -> None:
        """Add a sample."""
        self.labels.update(map(str, sample.labels))
        if not all(map(str.strip, sample.texts)):
            self._blank += 1
            self._first_blank = self._first_blank or location
        self._judged |= sample.answer is not None
        texts = "\0".join(sample.texts)
        self._texts.append(_hash(texts))
        self._rows.append(_hash(f"{texts}\0\0{sample.whole or sample.answer!r}"))

    def warnings(
        self, which: str, locate: Callable[[Collection[int]], Mapping[int, str]]
    ) -> list[str]:
        """Return what a person should know about the data."""
        lines = list[str]()
        if self._blank:
            lines.append(
                f"{self._blank:,} {which} have an empty text; the first is {self._first_blank}"
            )
        texts = _numbers(self._texts)
        rows = _numbers(self._rows)
        repeats = _repeats(rows, rows, equal=True)
        if repeats:
            lines.append(f"{len(repeats):,} {which} repeat others: {_places(repeats, locate)}")
        contradictions = _repeats(texts, rows, equal=False) if self._judged else []
        if contradictions:
            lines.append(
                f"{len(contradictions):,} {which} have the text of another one and a different "
                f"label: {_places(contradictions, locate)}"
            )
        return [*lines, *similar_labels(self.labels)]

    def shared_with(self, other: "DataReview") -> int:
        """Return how many samples have the texts of a sample of another review."""
        import numpy as np

        return int(np.isin(_numbers(self._texts), _numbers(other._texts)).sum())


def similar_labels(labels: Iterable[str]) -> list[str]:
    """Return warnings of labels that differ in case only."""
    groups = defaultdict[str, list[str]](list)
    for name in labels:
        groups[name.casefold()].append(name)
    return [
        f"the labels {', '.join(map(repr, sorted(names)))} differ in case only: write them alike"
        for names in groups.values()
        if len(names) > 1
    ]


def count_labels(labels: Mapping[str, int], order: Sequence[str] = ()) -> str:
    """Return labels with their numbers of samples: ``no (12), yes (8)``."""
    names = [*order] or sorted(labels, key=lambda name: (-labels[name], name))
    more = f", ... ({len(names):,} labels in all)" if len(names) > SHOWN else ""
    return ", ".join(f"{name} ({labels.get(name, 0):,})" for name in names[:SHOWN]) + more


def _hash(text: str) -> int:
    return int.from_bytes(blake3(text.encode(errors="surrogatepass")).digest(8), signed=True)


def _numbers(values: "array[int]") -> "NDArray[np.int64]":
    import numpy as np

    return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)


def _repeats(
    keys: "NDArray[np.int64]", rows: "NDArray[np.int64]", *, equal: bool
) -> list[tuple[int, int]]:
    """Return sample and earlier sample with the same key, whose rows are equal or differ."""
    import numpy as np

    order = keys.argsort(kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    same &= (rows[order][1:] == rows[order][:-1]) == equal
    pairs = np.stack([order[1:][same], order[:-1][same]], axis=1)
    return [(int(later), int(first)) for later, first in pairs[pairs[:, 0].argsort()]]


def _places(
    pairs: Sequence[tuple[int, int]], locate: Callable[[Collection[int]], Mapping[int, str]]
) -> str:
    shown = pairs[:EXAMPLES]
    places = locate({number for pair in shown for number in pair})
    more = ", ..." if len(pairs) > EXAMPLES else ""
    return ", ".join(f"{places[later]} and {places[first]}" for later, first in shown) + more
