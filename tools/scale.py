"""Time, memory and disk of large jobs, calculated from constants that were measured.

    python -m tools.scale                                   # write the tables of the page
    python -m tools.scale --check                           # compare them
    python -m tools.scale --measure MODEL --text FILE       # measure the constants of a CPU

The page is docs/guides/cluster.md. MODEL embeds texts, such as all-minilm-l6-v2, and FILE has at
least 6 MB of prose. Times are those of the CPU, so that other load does not count.
"""

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from benchmarks._common import table

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "cluster.md"
BEGIN = "<!-- scale: begin -->"
END = "<!-- scale: end -->"
ZOO = (sys.executable, "-m", "zoo")
TEXT_SIZES = (2_000_000, 6_000_000)  # characters of two corpora
TEXT_COUNTS = (500, 2_500)  # sentences of two files to embed
HOST_CORES = 64
HOST_GPUS = 8


@dataclass(frozen=True)
class Constants:
    """What was measured; a core is one of a CPU at the time of the measurement.

    Attributes:
        texts_per_core: sentences of about 90 characters that a core embeds in a second.
        embedding_gb: memory of a process that embeds.
        megabytes_per_core: text that a core reads, splits into sentences and tokenizes in a second.
        bytes_per_token: text of a token.
        corpus_bytes_per_token: files of a corpus.
        corpus_gb: memory of a process that builds a corpus.
    """

    texts_per_core: float
    embedding_gb: float
    megabytes_per_core: float
    bytes_per_token: float
    corpus_bytes_per_token: float
    corpus_gb: float


# Two cores of an Intel Xeon, with MiniLM and English novels.
CONSTANTS = Constants(
    texts_per_core=146,
    embedding_gb=0.463,
    megabytes_per_core=2.10,
    bytes_per_token=3.99,
    corpus_bytes_per_token=2.37,
    corpus_gb=0.101,
)
VECTOR_BYTES = 4 * 384  # of MiniLM, in float32
# python -m benchmarks.search: 1,000 queries among 100,000 vectors in 0.760 s
SEARCHED_VECTORS = 1_000 * 100_000 / 0.760
# python -m benchmarks.cuda --only BERT-base, on an H200
GPU_TOKENS = 523_000
PARAMETERS = 110_000_000  # of BERT-base
CHECKPOINT_BYTES = 12 * PARAMETERS  # weights and two moments in float32
DOCUMENT_TOKENS = 500
SUM_BYTES = 8  # of a document, in $ZOO_HOME/rows


def texts_rows(constants: Constants) -> list[list[str]]:
    """Return the rows of the table of texts to embed and to search."""
    rows = []
    for count in (10**7, 10**9):
        core_seconds = count / constants.texts_per_core
        vectors_gb = count * VECTOR_BYTES / 1e9
        rows.append(
            [
                scientific(count),
                duration(core_seconds / HOST_CORES),
                f"{constants.embedding_gb * HOST_CORES:.0f} GB",
                size(vectors_gb),
                duration(count / SEARCHED_VECTORS),
            ]
        )
    return rows


def tokens_rows(constants: Constants) -> list[list[str]]:
    """Return the rows of the table of tokens to build a corpus of and to train on."""
    rows = []
    for count in (10**9, 10**10, 10**11):
        text_bytes = count * constants.bytes_per_token
        core_seconds = text_bytes / 1e6 / constants.megabytes_per_core
        rows.append(
            [
                scientific(count),
                size(text_bytes / 1e9),
                duration(core_seconds / HOST_CORES),
                size(count * constants.corpus_bytes_per_token / 1e9),
                size(count / DOCUMENT_TOKENS * SUM_BYTES / 1e9),
                duration(count / GPU_TOKENS / HOST_GPUS),
            ]
        )
    return rows


def scientific(number: int) -> str:
    return f"10^{len(str(number)) - 1}"


def size(gigabytes: float) -> str:
    """Return a size with two digits, in a unit that suits it."""
    if gigabytes < 1:
        return f"{two_digits(1000 * gigabytes)} MB"
    if gigabytes < 1000:
        return f"{two_digits(gigabytes)} GB"
    return f"{two_digits(gigabytes / 1000)} TB"


def duration(seconds: float) -> str:
    """Return a time with two digits, in a unit that suits it."""
    for limit, divisor, unit in ((1, 0.001, "ms"), (100, 1, "s"), (6000, 60, "min")):
        if seconds < limit:
            return f"{two_digits(seconds / divisor)} {unit}"
    if seconds < 100 * 3600:
        return f"{two_digits(seconds / 3600)} h"
    return f"{two_digits(seconds / 86400)} days"


def two_digits(number: float) -> str:
    rounded = float(f"{number:.2g}")
    return f"{rounded:.0f}" if rounded >= 10 else f"{rounded:.1f}"


def tables(constants: Constants) -> str:
    """Return both tables of the page."""
    texts_header = ["texts", "embed", "memory", "vectors", "exact search, a query"]
    tokens_header = ["tokens", "text", "build", "corpus", "sums", "train once"]
    return "\n\n".join(
        (
            table(texts_header, texts_rows(constants)),
            table(tokens_header, tokens_rows(constants)),
        )
    )


def written(page: str) -> str:
    """Return the text of the page with current tables."""
    head, _, remainder = page.partition(BEGIN)
    _, _, tail = remainder.partition(END)
    return f"{head}{BEGIN}\n{tables(CONSTANTS)}\n{END}{tail}"


def measure(model: str, text_file: Path) -> Constants:
    """Measure the constants of this machine: differences of a large and a small job."""
    text = text_file.read_text("utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpora = [build_corpus(model, text[:length], folder) for length in TEXT_SIZES]
        embeddings = [embed(model, text, count, folder) for count in TEXT_COUNTS]
    (first_seconds, _), (second_seconds, embedding_bytes) = embeddings
    small, large = corpora
    tokens = large.tokens - small.tokens
    text_bytes = large.text_bytes - small.text_bytes
    return Constants(
        texts_per_core=(TEXT_COUNTS[1] - TEXT_COUNTS[0]) / (second_seconds - first_seconds),
        embedding_gb=embedding_bytes / 1e9,
        megabytes_per_core=text_bytes / 1e6 / (large.seconds - small.seconds),
        bytes_per_token=text_bytes / tokens,
        corpus_bytes_per_token=(large.corpus_bytes - small.corpus_bytes) / tokens,
        corpus_gb=large.memory / 1e9,
    )


@dataclass(frozen=True)
class CorpusCost:
    """What a corpus took; ``memory`` is in bytes."""

    seconds: float
    memory: int
    tokens: int
    text_bytes: int
    corpus_bytes: int


def build_corpus(model: str, text: str, folder: Path) -> CorpusCost:
    file = folder / f"{len(text)}.txt"
    file.write_text(text, "utf-8")
    corpus = folder / f"corpus-{len(text)}"
    seconds, memory = cost(
        "corpus", "build", str(file), "-o", str(corpus), "--tokenizer", model, "--workers", "1"
    )
    splits = msgspec.json.decode((corpus / "corpus.json").read_bytes())["splits"]
    tokens = sum(split["tokens"] for split in splits.values())
    corpus_bytes = sum(path.stat().st_size for path in corpus.rglob("*") if path.is_file())
    return CorpusCost(seconds, memory, tokens, file.stat().st_size, corpus_bytes)


def embed(model: str, text: str, count: int, folder: Path) -> tuple[float, int]:
    """Embed sentences; return seconds of the CPU, and bytes of memory."""
    sentences = (part.strip() for part in re.split(r"(?<=[.!?])\s+", " ".join(text.split())))
    short_sentences = (part for part in sentences if 20 < len(part) < 200)
    file = folder / f"{count}.txt"
    lines = "\n".join(itertools.islice(short_sentences, count))
    file.write_text(f"{lines}\n", "utf-8")
    output = folder / f"{count}.npy"
    return cost(
        "run", "embed", model, "--input", str(file), "--output", str(output), "--threads", "1"
    )


def cost(*arguments: str) -> tuple[float, int]:
    """Run a command of zoo; return seconds of the CPU, and the largest memory in bytes."""
    process = subprocess.Popen([*ZOO, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="compare the tables")
    parser.add_argument("--measure", metavar="MODEL", help="measure the constants of a CPU")
    parser.add_argument("--text", type=Path, help="file of at least 6 MB of prose")
    options = parser.parse_args(arguments)
    if options.measure:
        for name, value in asdict(measure(options.measure, options.text)).items():
            print(f"{name}={value:.3g}")
        return 0
    page = PAGE.read_text("utf-8")
    if options.check:
        return int(written(page) != page)
    PAGE.write_text(written(page), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
