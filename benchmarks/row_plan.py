"""Cost of finding the rows of a step in corpora of synthetic offsets, next to other loaders.

    python -m benchmarks.row_plan [--tokens 1e7 1e8 1e9 1e10] [--litdata PYTHON]

The corpora have offsets of documents and sentences on disk, and a token file without blocks (all
tokens are 0), so that 10^10 tokens take the place of their offsets: 3.4 GB with sentences of 25
tokens. Each side runs in processes of its own: it opens the corpus, goes to the step at 90 % of an
epoch, and reads its 256 rows of 512 tokens.

* ``first process``: ``zoo``, which writes the sums of the documents.
* ``next process``: ``zoo``, which maps them. Its rows have to equal the first process's.
* ``filled rows``: ``zoo`` for runs that earlier versions began, and for sources and targets of one
  length, up to ``--filled-up-to`` tokens.
* ``noise``: ``zoo`` for T5's spans of noise without ``concat_documents``. The room that a text
  takes is not proportional to its size, so that rows are filled one after another.
* ``next sentence`` and ``sentence order``: ``zoo`` for pairs of sentences, which are made and
  packed in blocks of documents, up to ``--filled-up-to`` tokens.
* ``memory map``: as in nanoGPT's ``train.py``, rows begin at random places of the token file. There
  are no documents, epochs or places to resume from.
* ``litdata``: a ``StreamingDataset`` of chunks of 64 MB with its ``TokensLoader``, restored by its
  ``load_state_dict``; in the environment of ``--litdata``, and left out without it. Rows are
  stretches of chunks, regardless of documents, and chunks are read in turn.

CPU time is counted after the imports of a process, and memory is the peak above that after the
imports, all of it and the part that is not a mapped file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import _litdata_side
from benchmarks._common import machine, table, versions

LENGTH = 512
ROWS = 256  # rows of a step
SPECIAL_TOKENS = 2
POSITION = 0.9  # of an epoch
BLOCK_DOCUMENTS = 1 << 16
SIDES = {
    "first": "first process",
    "next": "next process",
    "filled": "filled rows",
    "noise": "noise",
    "next-sentence": "next sentence",
    "sentence-order": "sentence order",
    "map": "memory map",
    "litdata": "litdata",
}
# Sides whose time and files grow with the rows or the pairs.
ONE_AFTER_ANOTHER = ("filled", "noise", "next-sentence", "sentence-order")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=float, nargs="+", default=[1e7, 1e8, 1e9, 1e10])
    parser.add_argument("--document-tokens", type=int, default=500, help="mean of a document")
    parser.add_argument("--sentence-tokens", type=int, default=25, help="tokens of a sentence")
    parser.add_argument("--filled-up-to", type=float, default=1e9, help="tokens, for filled rows")
    parser.add_argument("--litdata", help="interpreter of an environment with litdata")
    parser.add_argument("--folder", type=Path, help="folder for the corpora, by default temporary")
    parser.add_argument("--part", choices=list(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(run_part(options.part, options.folder)))
        return
    print(f"{machine()}. {versions('numpy')}.\n")
    if options.litdata is None:
        print("litdata is left out: --litdata names an interpreter that has it.\n")
    for tokens in options.tokens:
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            compare_sides(options, int(tokens), Path(scratch))


def compare_sides(options: argparse.Namespace, tokens: int, scratch: Path) -> None:
    """Print a table of all sides for a corpus of some size."""
    documents = write_offsets(scratch, tokens, options.document_tokens, options.sentence_tokens)
    rows = []
    spans: dict[str, Any] = {}
    for name, title in SIDES.items():
        if name in ONE_AFTER_ANOTHER and tokens > options.filled_up_to:
            continue
        if name == "litdata":
            if options.litdata is None:
                continue
            script = str(Path(_litdata_side.__file__))
            command = [options.litdata, script, str(scratch / "chunks"), str(tokens)]
        else:
            command = [sys.executable, "-m", "benchmarks.row_plan", "--part", name]
            command += ["--folder", str(scratch)]
        env = {**os.environ, "ZOO_HOME": str(scratch / "home")}
        output = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout
        result = json.loads(output.splitlines()[-1])
        spans[name] = result["spans"]
        rows.append(
            [
                title,
                f"{result['open_seconds']:.3f}",
                f"{1000 * result['step_seconds']:.1f}",
                f"{result['peak_mb']:.0f}",
                f"{result['private_mb']:.0f}",
            ]
        )
    if spans["first"] != spans["next"]:
        raise SystemExit("the first and the next process read different rows")
    plan_bytes = sum(file.stat().st_size for file in (scratch / "home").rglob("ends.npy"))
    print(f"{tokens:.0e} tokens, {documents:,} documents; sums of {plan_bytes / 1e6:.1f} MB\n")
    header = ["", "CPU s to the position", "CPU ms of its step", "peak MB", "not mapped, MB"]
    print(table(header, rows) + "\n", flush=True)


def write_offsets(folder: Path, tokens: int, document_tokens: int, sentence_tokens: int) -> int:
    """Write the offsets of a corpus, and its tokens as a file without blocks.

    The lengths of documents are log-normal. Returns the number of documents.
    """
    (folder / "tokens.bin").touch()
    os.truncate(folder / "tokens.bin", 2 * tokens)
    documents = 0
    sentences = 0
    start = 0
    with (
        (folder / "sentences.bin").open("wb") as sentence_file,
        (folder / "documents.bin").open("wb") as document_file,
    ):
        for lengths in document_lengths(tokens, document_tokens):
            counts = -(-lengths // sentence_tokens)
            firsts = np.cumsum(counts) - counts
            document_file.write((sentences + firsts).tobytes())
            starts = np.cumsum(lengths) - lengths
            number = np.arange(counts.sum()) - np.repeat(firsts, counts)
            sentence_file.write(
                (start + np.repeat(starts, counts) + number * sentence_tokens).tobytes()
            )
            documents += len(lengths)
            sentences += int(counts.sum())
            start += int(lengths.sum())
        document_file.write(np.int64(sentences).tobytes())
        sentence_file.write(np.int64(tokens).tobytes())
    return documents


def document_lengths(tokens: int, mean: int) -> Iterator[NDArray[np.int64]]:
    """Yield the lengths of documents in blocks, which sum to a number of tokens."""
    rng = np.random.default_rng(0)
    remaining = tokens
    while remaining:
        drawn = rng.lognormal(np.log(mean) - 0.5, 1.0, BLOCK_DOCUMENTS)
        lengths = np.maximum(1, drawn).astype(np.int64)
        count = int(np.searchsorted(np.cumsum(lengths), remaining))
        if count < len(lengths):
            lengths = lengths[: count + 1]
            lengths[-1] -= lengths.sum() - remaining
        remaining -= int(lengths.sum())
        yield lengths


def run_part(name: str, folder: Path) -> dict[str, Any]:
    """Return the measurements of a side in this process."""
    from zoo.data.corpus import Split
    from zoo.data.order import EpochOrder
    from zoo.data.packing import cut_documents, pack_documents
    from zoo.objectives.examples.seq2seq_packing import plan_decoder_length

    measure = _litdata_side.Measure()
    tokens = np.memmap(folder / "tokens.bin", "<u2", "r")
    spans: list[Any] = []
    if name == "map":
        # ``get_batch`` of nanoGPT.
        measure.opened()
        starts = np.random.default_rng(0).integers(len(tokens) - LENGTH, size=ROWS)
        for start in starts.tolist():
            tokens[start : start + LENGTH].astype(np.int64)
    else:
        order: Any = "arrays" if name == "filled" else "keyed"
        split = Split(
            [tokens],
            np.memmap(folder / "sentences.bin", "<i8", "r"),
            np.memmap(folder / "documents.bin", "<i8", "r"),
            order=order,
            key="synthetic",
        )
        if name in ("next-sentence", "sentence-order"):
            return measure_pairs(name, split, measure)
        if name == "noise":
            new_row, _ = plan_decoder_length(noise_lengths, split, LENGTH)
            plan = pack_documents(split, length=LENGTH, new_row=new_row, seed=0)
        else:
            plan = cut_documents(split, length=LENGTH, special_tokens=SPECIAL_TOKENS, seed=0)
        rows = EpochOrder(order, len(plan), 0)
        first_row = int(POSITION * len(plan)) // ROWS * ROWS
        rows[first_row]
        measure.opened()
        for number in range(first_row, first_row + ROWS):
            row = plan.row(rows[number])
            spans += row
            for span in row:
                split.read(*span)
    return measure.finished(spans)


def measure_pairs(name: str, split: Any, measure: _litdata_side.Measure) -> dict[str, Any]:
    """Return the measurements of a plan of sentence pairs."""
    from zoo.data.order import EpochOrder
    from zoo.objectives.examples.sentence_pair_data import (
        cached_pairs,
        consecutive_pairs,
        next_sentence_pairs,
    )

    generate = next_sentence_pairs if name == "next-sentence" else consecutive_pairs
    plan = cached_pairs(split, generate, length=LENGTH, special_tokens=3, seed=0, dupe_factor=1)
    rows = EpochOrder("keyed", len(plan), 0)
    first_row = int(POSITION * len(plan)) // ROWS * ROWS
    rows[first_row]
    measure.opened()
    spans: list[Any] = []
    for number in range(first_row, first_row + ROWS):
        for (start, end, other_start, other_end), _ in plan.row(rows[number]):
            spans += [(start, end), (other_start, other_end)]
            split.read(start, end)
            split.read(other_start, other_end)
    return measure.finished(spans)


def noise_lengths(tokens: int) -> tuple[int, int] | None:
    """Return the lengths of source and target of a text with T5's spans of noise."""
    from zoo.objectives.examples.span_noise import num_noise_spans, num_noise_tokens

    noise = num_noise_tokens(tokens, 0.15)
    spans = num_noise_spans(tokens, 0.15, 3.0)
    return tokens - noise + spans, noise + max(spans, 1)


if __name__ == "__main__":
    main()
