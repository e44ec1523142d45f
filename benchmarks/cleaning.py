"""What `zoo corpus clean` finds of planted faults, how fast it is, and how much memory it takes.

    python -m benchmarks.cleaning [--megabytes 200] [--files 16] [--workers 2]

Pages of random sentences are written as JSON lines, and faults are planted in some of them: lines
of menus and policies, filler text, brackets, short pages, copies of pages, nearly equal pages, and
repeated lines, spans and runs of words. Recall is the fraction of the planted faults that are
removed. Precision is the fraction of what is removed that was planted; a page without a fault that
is dropped counts against it.
"""

import argparse
import gzip
import json
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._common import machine, versions, zoo

SENTENCES = 12  # of a page
WORDS = 12  # of a sentence
VOCABULARY = 20_000
SHARE = 0.02  # of the pages, for each fault
CHANGED_WORDS = 0.02  # of a page that is nearly equal to another one
SEED = 0


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: its name.
        options: the options that remove it.
        whole_pages: whether pages are removed, and not a part of them.
    """

    name: str
    options: tuple[str, ...]
    whole_pages: bool


FAULTS = (
    Fault("menu lines", ("--rule", "c4"), False),
    Fault("policy lines", ("--rule", "c4"), False),
    Fault("filler text", ("--rule", "c4"), True),
    Fault("brackets", ("--rule", "c4"), True),
    Fault("short pages", ("--rule", "c4"), True),
    Fault("repeated lines", ("--deduplicate", "lines"), False),
    Fault("repeated spans", ("--deduplicate", "spans"), False),
    Fault("repeated runs", ("--deduplicate", "substrings"), False),
    Fault("copies", ("--deduplicate", "documents"), True),
    Fault("nearly equal", ("--deduplicate", "documents"), True),
)


class Pages:
    """Makes pages with planted faults."""

    def __init__(self, seed: int) -> None:
        self.generator = random.Random(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.vocabulary = [
            "".join(self.generator.choices(letters, k=self.generator.randint(2, 9)))
            for _ in range(VOCABULARY)
        ]
        self.boilerplate = {
            fault.name: self.sentences(5) for fault in FAULTS if "repeated" in fault.name
        }
        self.planted = Counter[str]()
        self.previous_page = ""

    def sentences(self, count: int) -> list[str]:
        """Return random sentences."""
        sentences = []
        for _ in range(count):
            words = self.generator.choices(self.vocabulary, k=WORDS)
            sentences.append(" ".join(words).capitalize() + ".")
        return sentences

    def page(self) -> tuple[str, str]:
        """Return a page, and the name of its fault, which may be empty."""
        sentences = self.sentences(SENTENCES)
        number = int(self.generator.random() / SHARE)
        if number >= len(FAULTS):
            self.previous_page = "\n".join(sentences)
            return self.previous_page, ""
        name = FAULTS[number].name
        self.planted[name] += 1
        return self.with_fault(sentences, name), name

    def with_fault(self, sentences: list[str], name: str) -> str:
        """Return a page with a fault."""
        if name == "menu lines":
            return "\n".join(["Home | News | About us menufault", *sentences])
        if name == "policy lines":
            return "\n".join([*sentences, "Read all about our privacy policy policyfault here."])
        if name == "filler text":
            return "\n".join([*sentences, "Lorem ipsum dolor sit amet consectetur."])
        if name == "brackets":
            return "\n".join([*sentences, "The code is if (a) { return b } as usual."])
        if name == "short pages":
            return "\n".join(sentences[:2])
        if name in self.boilerplate:
            repeated = self.boilerplate[name]
            if name == "repeated lines":
                return "\n".join([*sentences, repeated[0]])
            if name == "repeated spans":
                return " ".join([*sentences[:6], *repeated[:3], *sentences[6:]])
            return " ".join([*sentences[:6], *repeated, *sentences[6:]])
        if name == "nearly equal":
            words = self.previous_page.split(" ")
            for _ in range(int(CHANGED_WORDS * len(words))):
                words[self.generator.randrange(len(words))] = "other"
            return " ".join(words)
        return self.previous_page


def write_pages(folder: Path, size: int, files: int) -> tuple[dict[str, str], Pages]:
    """Write pages of so many bytes; return page -> fault, and how they were made."""
    pages = Pages(SEED)
    faults = {}
    for number in range(files):
        path = folder / f"{number:03d}.jsonl"
        written = 0
        row = 0
        with path.open("w") as file:
            while written < size // files:
                text, fault = pages.page()
                line = json.dumps({"text": text}) + "\n"
                file.write(line)
                written += len(line)
                row += 1
                faults[f"{path}:{row}"] = fault
    return faults, pages


def read_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each cleaned page."""
    for path in sorted((folder / "texts").iterdir()):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                yield row["id"], row["text"]


def marker(fault: Fault, pages: Pages) -> Callable[[str], bool]:
    """Return a function that says whether a page still has a fault that is a part of it."""
    if fault.name == "menu lines":
        return lambda text: "menufault" in text
    if fault.name == "policy lines":
        return lambda text: "policyfault" in text
    # The second sentence of a repeated span; the first and the last may be shared with a run.
    repeated = pages.boilerplate[fault.name]
    sentence = repeated[0] if fault.name == "repeated lines" else repeated[1]
    return lambda text: sentence in text


def judge(fault: Fault, output: Path, faults: dict[str, str], pages: Pages) -> tuple[float, float]:
    """Return precision and recall of what the options of a fault removed."""
    left = dict(read_pages(output))
    planted = {name for name, kind in faults.items() if kind == fault.name}
    if fault.whole_pages:
        same = {other.name for other in FAULTS if other.options == fault.options}
        removed = faults.keys() - left.keys()
        wrong = {name for name in removed if faults[name] not in same}
        found = len(planted & removed)
        return found / max(found + len(wrong), 1), found / len(planted)
    has_fault = marker(fault, pages)
    found = sum(name not in left or not has_fault(left[name]) for name in planted)
    clean = [name for name, kind in faults.items() if not kind]
    wrong_pages = sum(name not in left for name in clean)
    if "repeated" in fault.name:
        found = min(found, len(planted) - 1)  # The first one is to be left.
        return found / max(found + wrong_pages, 1), found / (len(planted) - 1)
    return found / max(found + wrong_pages, 1), found / len(planted)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    size = int(options.megabytes * 1e6)
    print(machine())
    print(versions("datatrove", "spacy"))
    print("| fault | options | precision | recall | MB/s per core | peak MB of a process |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "crawl").mkdir()
        faults, pages = write_pages(folder / "crawl", size, options.files)
        outputs: dict[tuple[str, ...], tuple[Path, float, float]] = {}
        for fault in FAULTS:
            if fault.options not in outputs:
                outputs[fault.options] = clean(folder, fault, options.workers, size)
            output, speed, peak = outputs[fault.options]
            precision, recall = judge(fault, output, faults, pages)
            words = " ".join(fault.options)
            print(
                f"| {fault.name} | `{words}` | {precision:.3f} | {recall:.3f} | {speed:.2f} "
                f"| {peak:,.0f} |"
            )


def clean(folder: Path, fault: Fault, workers: int, size: int) -> tuple[Path, float, float]:
    """Clean the pages; return the output, MB/s for each process, and the peak of their memory."""
    output = folder / "-".join(fault.options).strip("-")
    start = time.perf_counter()
    words = ("corpus", "clean", folder / "crawl", "-o", output, *fault.options)
    zoo(*words, "--workers", workers, "--quiet")
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    return output, size / 1e6 / seconds / workers, peak


if __name__ == "__main__":
    main()
