"""Building of a corpus, compared with a loop over the same documents with transformers' tokenizer.

    python -m benchmarks.corpus --corpus FOLDER --tokenizer DIRECTORY [--megabytes 200]

FOLDER holds text files, which are repeated up to the given size; DIRECTORY holds a tokenizer in the
Hub's layout. The loop reads paragraphs, tokenizes a thousand at a time and collects the ids; it
splits no sentences and uses one process, with the threads of the library. Each side runs in a
process of its own, whose peak resident set size is measured; worker processes of ``zoo corpus
build`` are listed separately. Ids are compared before times are measured.
"""

import argparse
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks._common import alternate, compare, machine, run_process, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .txt files")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--family", default="bert")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=["ours", "loop"], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        {"ours": ours, "loop": loop}[options.part](options)
        return
    print(f"{machine()}. {versions('tokenizers', 'transformers')}.\n")
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory() as scratch:
            measure(options, megabytes, Path(scratch))


def measure(options: argparse.Namespace, megabytes: int, scratch: Path) -> None:
    source = scratch / "texts.txt"
    texts = sorted(options.corpus.rglob("*.txt"))
    with source.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            for text in texts:
                file.write(text.read_bytes().strip() + b"\n\n")
    tokenizer = ["--tokenizer", str(options.tokenizer), "--family", options.family]

    def part(name: str) -> object:
        shutil.rmtree(scratch / name, ignore_errors=True)
        part_options = ["--part", name, "--corpus", str(source), "--out", str(scratch / name)]
        return run_process([sys.executable, "-m", "benchmarks.corpus", *part_options, *tokenizer])

    timings = alternate(
        {name: lambda name=name: part(name) for name in ("ours", "loop")},  # type: ignore[misc]
        rounds=options.rounds,
        warm_up=0,
    )
    shards = [np.fromfile(p, "<u2") for p in sorted((scratch / "ours/train").glob("tokens-*"))]
    ids = np.concatenate(shards)
    if not np.array_equal(ids, np.fromfile(scratch / "loop/ids", "<u2")):
        sys.exit("the ids differ")
    size = source.stat().st_size
    print(f"{size / 1e6:.0f} MB of text, {len(ids):,} tokens\n")
    print(compare(timings, "ours"))
    for name, timing in timings.items():
        print(
            f"{name}: {len(ids) / timing.best:,.0f} tokens/s at best, "
            f"{size / timing.best / 1e6:.1f} MB/s"
        )
    print((scratch / "ours.txt").read_text(), flush=True)


def ours(options: argparse.Namespace) -> None:
    from zoo.data.build import CorpusSpec, build
    from zoo.data.tokenizer import load_tokenizer
    from zoo.plugins import get_family

    tokenizer = load_tokenizer(str(options.tokenizer), get_family(options.family))
    build(CorpusSpec([options.corpus], tokenizer, eval_fraction=0.0), options.out)
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    text = f"largest process that tokenizes: {child * 1024 / 1e6:.0f} MB\n"
    options.out.with_suffix(".txt").write_text(text)


def loop(options: argparse.Namespace) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    texts = paragraphs(options.corpus)
    options.out.mkdir()
    with (options.out / "ids").open("wb") as file:
        while batch := list(islice(texts, 1000)):
            for ids in tokenizer(batch, add_special_tokens=False)["input_ids"]:
                np.array(ids, "<u2").tofile(file)


def paragraphs(path: Path) -> Iterator[str]:
    held: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                held.append(line.strip())
            elif held:
                yield " ".join(held)
                held = []
    if held:
        yield " ".join(held)


if __name__ == "__main__":
    main()
