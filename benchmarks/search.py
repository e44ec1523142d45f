"""Exact search over vectors, compared with ``semantic_search`` of sentence-transformers.

    python -m benchmarks.search [--texts 100000] [--queries 1000] [--width 384] [--rounds 5]
        [--threads 2]

Both sides search the same random vectors, whose neighbours are known: a query is a vector of the
corpus with noise. First, the results must be the same. Memory is what the search allocates beyond
the vectors; the benchmark fails if it grows with the queries.
"""

import argparse
import os
import sys
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks._common import alternate, compare, machine, versions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

NOISE = 0.5
AGREE = 1e-5
GROWTH = 1.1  # of memory with the queries that is measured at most
TOP_K = 10


def vectors(texts: int, queries: int, width: int) -> "tuple[Floats, Floats]":
    """Return a corpus and queries."""
    import numpy as np

    rng = np.random.default_rng(0)
    corpus = rng.standard_normal((texts, width), dtype=np.float32)
    chosen = corpus[rng.integers(texts, size=queries)]
    return corpus, chosen + NOISE * rng.standard_normal(chosen.shape, dtype=np.float32)


def require_equal(ours: list[Any], theirs: list[Any]) -> float:
    """Check that results are the same, and return the largest difference of scores."""
    worst = 0.0
    for query, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if [row["corpus_id"] for row in mine] != [row["corpus_id"] for row in other]:
            sys.exit(f"error: the results of query {query} differ")
        scores = zip(mine, other, strict=True)
        worst = max(worst, *(abs(a["score"] - b["score"]) for a, b in scores))
    if worst > AGREE:
        sys.exit(f"error: scores differ by {worst:.1e}, more than {AGREE:.0e}")
    return worst


def peak_mb(corpus: "Floats", queries: "Floats") -> float:
    """Return the memory that a search allocates beyond its arguments, in MB."""
    from zoo.inference.processing.search import search_vectors

    tracemalloc.start()
    for best in search_vectors(queries, corpus, TOP_K, "cosine"):
        del best
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def require_bounded(few: float, many: float) -> None:
    """Check that memory for many queries is as for few of them."""
    if many > GROWTH * few:
        sys.exit(f"error: memory grows with the queries, from {few:.1f} to {many:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(options.threads))

    import torch
    from sentence_transformers import util

    from zoo.inference.processing.search import QUERIES, semantic_search

    torch.set_num_threads(options.threads)
    theirs: Any = util.semantic_search  # arrays are not in its annotations
    corpus, queries = vectors(options.texts, options.queries, options.width)
    contenders = {
        "zoo": partial(semantic_search, queries, corpus, top_k=TOP_K),
        "sentence-transformers": partial(theirs, queries, corpus, top_k=TOP_K),
    }
    worst = require_equal(*(search() for search in contenders.values()))
    timings = alternate(contenders, rounds=options.rounds)
    print(f"{machine(options.threads)}. {versions('torch', 'numpy', 'sentence-transformers')}.")
    print(
        f"{options.queries:,} queries among {options.texts:,} vectors of {options.width}, the same "
        f"{TOP_K} results. Largest difference between scores: {worst:.1e}.\n"
    )
    print(compare(timings, "zoo"))
    few, many = (peak_mb(corpus, queries[:count]) for count in (QUERIES, None))
    print(f"\nMemory of a search: {few:.1f} MB for {QUERIES} queries, {many:.1f} MB for all.")
    require_bounded(few, many)


if __name__ == "__main__":
    main()
