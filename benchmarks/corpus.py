"""Building of a corpus, compared with a loop over the same documents with the tokenizers library.

    python -m benchmarks.corpus --corpus FOLDER [--megabytes 20 200] [--tokenizer DIRECTORY ...]

FOLDER holds text files, which are repeated up to the given size; a DIRECTORY holds a tokenizer in
the Hub's layout. By default, tokenizers of 16,000 tokens are trained on the texts: WordPiece,
byte-level BPE and Unigram. The loop reads paragraphs, tokenizes a thousand at a time with the
threads of the library and writes the ids; it splits no sentences, holds nothing out and computes no
digests. Each side runs in a process of its own. The rate per core is the size of the texts by the
CPU time of the process and its children, with the start of Python. Ids are compared before times
are measured.

Then the time, the CPU time and the memory of the start of a run are measured: ``zoo pretrain`` with
one step, on a corpus that is in the cache and on one that is not, and ``zoo examples``.
"""

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks._common import alternate, machine, run_process, table, versions

TRAINED = {"bert": "wordpiece", "gpt": "byte-level-bpe", "t5": "unigram"}
SIDES = ("zoo", "library")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .txt files")
    parser.add_argument("--tokenizer", type=Path, nargs="*", help="of families of BERT's kind")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-starts", action="store_true", help="only measure corpora")
    parser.add_argument("--part", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        {"zoo": build_corpus, "library": run_library}[options.part](options)
        return
    print(f"{machine()}. {versions('tokenizers')}.\n")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        tokenizers = {path.name: path for path in options.tokenizer or ()}
        if not tokenizers:
            tokenizers = train_tokenizers(options.corpus, scratch)
        rows = []
        for megabytes in options.megabytes:
            source = scratch / "texts.txt"
            repeat_texts(options.corpus, source, megabytes)
            for name, tokenizer in tokenizers.items():
                rows += measure(name, tokenizer, source, scratch, options.rounds)
        header = ["tokenizer", "MB", "side", "seconds", "CPU s", "MB/s per core", "ratio", "MB RSS"]
        print(table(header, rows), flush=True)
        if not options.skip_starts:
            print()
            print(start_costs(scratch / "texts.txt", scratch, options.rounds))


def train_tokenizers(corpus: Path, scratch: Path) -> dict[str, Path]:
    """Train a tokenizer of each kind; return kind -> its directory."""
    from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
    from zoo.data.tokenizer import TokenizerToTrain
    from zoo.plugins import get_family

    documents = list(read_documents(expand_paths([corpus]), ReaderConfig()))
    directories = {}
    for family, kind in TRAINED.items():
        settings = TokenizerToTrain.for_family(
            get_family(family), vocab_size=16_000, tokenizer_type=kind, sample_chars=3_000_000
        )
        directories[kind] = scratch / family
        directories[kind].mkdir()
        tokenizer = settings.make(lambda: [documents])
        (directories[kind] / "tokenizer.json").write_bytes(tokenizer.json)
        print(f"trained {kind}", file=sys.stderr, flush=True)
    return directories


def repeat_texts(corpus: Path, target: Path, megabytes: int) -> None:
    """Write texts to a file until it has a size."""
    texts = sorted(corpus.rglob("*.txt"))
    with target.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            for text in texts:
                file.write(text.read_bytes().strip() + b"\n\n")


def measure(
    name: str, tokenizer: Path, source: Path, scratch: Path, rounds: int
) -> list[list[str]]:
    """Return a row of each side; the ids have to be equal."""

    def part(side: str) -> object:
        shutil.rmtree(scratch / side, ignore_errors=True)
        argv = [sys.executable, "-m", "benchmarks.corpus", "--part", side]
        argv += ["--corpus", str(source), "--out", str(scratch / side)]
        return run_process([*argv, "--tokenizer", str(tokenizer)])

    sides = {side: partial(part, side) for side in SIDES}
    timings = alternate(sides, rounds=rounds, warm_up=0)
    shards = [np.fromfile(p, "<u2") for p in sorted((scratch / "zoo/train").glob("tokens-*"))]
    if not np.array_equal(np.concatenate(shards), np.fromfile(scratch / "library/ids", "<u2")):
        sys.exit(f"{name}: the ids differ")
    megabytes = source.stat().st_size / 1e6
    library = statistics.median(timings["library"].cpu_seconds)
    rows = []
    for side, timing in timings.items():
        cpu = statistics.median(timing.cpu_seconds)
        peak = f"{max(timing.peak_mb):.0f}"
        if side == "zoo":
            peak += (scratch / "zoo.txt").read_text()
        rows.append(
            [
                name,
                f"{megabytes:.0f}",
                side,
                f"{timing.median:.1f}",
                f"{cpu:.1f}",
                f"{megabytes / cpu:.2f}",
                f"{library / cpu:.2f}",
                peak,
            ]
        )
    return rows


def build_corpus(options: argparse.Namespace) -> None:
    from zoo.data.build import CorpusSpec, build
    from zoo.data.tokenizer import load_tokenizer
    from zoo.plugins import get_family

    (directory,) = options.tokenizer
    family = directory.name if directory.name in TRAINED else "bert"
    tokenizer = load_tokenizer(str(directory), get_family(family))
    build(CorpusSpec([options.corpus], tokenizer, eval_fraction=0.0), options.out)
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    options.out.with_suffix(".txt").write_text(f", {child * 1024 / 1e6:.0f} a worker")


def run_library(options: argparse.Namespace) -> None:
    from tokenizers import Tokenizer

    (directory,) = options.tokenizer
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    texts = paragraphs(options.corpus)
    options.out.mkdir()
    with (options.out / "ids").open("wb") as file:
        while batch := list(islice(texts, 1000)):
            for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
                np.array(encoding.ids, "<u2").tofile(file)


def paragraphs(path: Path) -> Iterator[str]:
    lines: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                lines.append(line.strip())
            elif lines:
                yield " ".join(lines)
                lines = []
    if lines:
        yield " ".join(lines)


def start_costs(source: Path, scratch: Path, rounds: int) -> str:
    """Return a table of what it takes until the first step of a run, or until examples appear."""
    home = scratch / "home"
    common = ["--train", str(source), "--offline"]
    pretrain = [sys.executable, "-m", "zoo", "pretrain", "gpt", "--max-steps", "1", *common]
    examples = [sys.executable, "-m", "zoo", "examples", "gpt", *common]

    def start(argv: list[str], *, is_cached: bool) -> object:
        if not is_cached:
            shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(scratch / "run", ignore_errors=True)
        output = ["-o", str(scratch / "run")] if "pretrain" in argv else []
        return run_process([*argv, *output], {"ZOO_HOME": str(home)})

    commands = {
        "zoo pretrain, not cached": partial(start, pretrain, is_cached=False),
        "zoo pretrain, cached": partial(start, pretrain, is_cached=True),
        "zoo examples, not cached": partial(start, examples, is_cached=False),
        "zoo examples, cached": partial(start, examples, is_cached=True),
    }
    rows = []
    for name, command in commands.items():
        (timing,) = alternate({name: command}, rounds=rounds, warm_up=0).values()
        cpu = statistics.median(timing.cpu_seconds)
        peak = max(timing.peak_mb)
        rows.append([name, f"{timing.median:.1f}", f"{cpu:.1f}", f"{peak:.0f}"])
    megabytes = source.stat().st_size / 1e6
    return table([f"start, {megabytes:.0f} MB of text", "seconds", "CPU s", "MB RSS"], rows)


if __name__ == "__main__":
    main()
