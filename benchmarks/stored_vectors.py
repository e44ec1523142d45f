"""What small vectors and approximate search lose, and what they save, on the vectors of real text.

    python -m benchmarks.stored_vectors MODEL --texts FILE... [--count 5000] [--queries 200]
        [--multipliers 1 4 10] [--threads 2]

The files have paragraphs, separated by blank lines. The first ``--count`` of at least 40 characters
are the corpus, and sentences of the paragraphs that follow are the queries. Recall is the share of
the best 10 texts of exact search over float32 that a search finds. Times are medians of five
searches of all queries together, without embedding them.
"""

import argparse
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._common import machine, versions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

TOP_K = 10
ROUNDS = 5
SHORTEST = 40  # characters of a text


def paragraphs(files: Sequence[Path]) -> list[str]:
    """Return the paragraphs of files, each in one line and once."""
    texts: dict[str, None] = {}
    for file in files:
        for part in re.split(r"\n\s*\n", file.read_text("utf-8")):
            text = " ".join(part.split())
            if len(text) >= SHORTEST:
                texts[text] = None
    return list(texts)


def first_sentences(texts: Sequence[str], count: int) -> list[str]:
    """Return the first sentence of each text that begins with a long one."""
    sentences = []
    for text in texts:
        sentence = re.split(r"(?<=[.!?]) ", text)[0]
        if len(sentence) >= SHORTEST:
            sentences.append(sentence)
    return sentences[:count]


def median_seconds(search: Callable[[], Any]) -> float:
    """Return the median duration of a search."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        search()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def recall(found: "NDArray[Any]", expected: "NDArray[Any]") -> float:
    """Return the share of the expected texts that were found."""
    import numpy as np

    shares = [np.isin(e, f).mean() for f, e in zip(found, expected, strict=True)]
    return float(np.mean(shares))


def write_vectors(path: Path, vectors: "Floats", dtype: str) -> None:
    """Write an array as ``zoo run embed --output-dtype`` does."""
    import numpy as np

    from zoo.inference.embed import quantize

    if dtype == "int8":
        codes, _ = quantize(vectors)
        np.save(path, codes)
    elif dtype == "binary":
        np.save(path, np.packbits(vectors > 0, axis=1))
    else:
        np.save(path, vectors.astype(dtype))


def measure(folder: Path, embeddings: "Floats", queries: "Floats", counts: list[int]) -> None:
    """Print the table."""
    import numpy as np

    from zoo.inference.processing.search import search_vectors
    from zoo.tasks.retrieval.approximate import ApproximateSearch, SearchMethod
    from zoo.tasks.retrieval.index import open_index

    print(f"{'stored as':10}{'search':20}{'bytes/text':>11}{'recall@10':>11}{'ms/query':>10}")
    expected: Any = None
    for dtype in ("float32", "float16", "int8", "binary"):
        path = folder / f"{dtype}.npy"
        write_vectors(path, embeddings, dtype)
        with open_index(path, [], "cosine") as index:
            vectors = index.vectors

            def exact(vectors: Any = vectors) -> "NDArray[Any]":
                parts = search_vectors(queries, vectors, TOP_K, "cosine")
                return np.concatenate([part.ids for part in parts])

            numbers = exact()
            if expected is None:
                expected = numbers
            searches: list[tuple[str, int, Any]] = [("exact", vectors.bytes_per_vector, exact)]
            methods: list[tuple[SearchMethod, int, int]] = []
            if dtype == "float32":
                size = vectors.shape[1]
                methods.append(("hnsw", 1, size * 4 + 2 * 32 * 4))
                methods += [("int8", count, size) for count in counts]
                methods += [("binary", count, -(-size // 8)) for count in counts]
            for method, count, size in methods:
                approximate = ApproximateSearch(vectors, "cosine", method, count)

                def search(approximate: Any = approximate) -> "NDArray[Any]":
                    found: NDArray[Any] = approximate.search(queries, TOP_K).ids
                    return found

                name = method if method == "hnsw" else f"{method}, {count} x {TOP_K}"
                searches.append((name, size, search))
            for name, size, search in searches:
                seconds = median_seconds(search) / len(queries)
                share = recall(search(), expected)
                print(f"{dtype:10}{name:20}{size:11,}{share:11.3f}{1000 * seconds:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--texts", nargs="+", type=Path, required=True)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--multipliers", nargs="+", type=int, default=[1, 4, 10])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

    import zoo

    texts = paragraphs(arguments.texts)
    corpus = texts[: arguments.count]
    sentences = first_sentences(texts[arguments.count :], arguments.queries)
    model = zoo.load(arguments.model, backend="cpu", threads=arguments.threads)
    print(machine(arguments.threads), versions("numpy", "torch", "faiss-cpu"))
    print(f"{len(corpus):,} texts, {len(sentences):,} queries, {arguments.model}")
    with tempfile.TemporaryDirectory() as folder:
        queries = model.encode_query(sentences)
        measure(Path(folder), model.encode_document(corpus), queries, arguments.multipliers)


if __name__ == "__main__":
    main()
