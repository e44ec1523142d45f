"""A data set in the layout of BEIR."""

import random
from pathlib import Path

from tests.finetuning.making import texts, write_table


def beir(folder: Path, *, trec: bool = False, seed: int = 1) -> dict[str, dict[str, int]]:
    """Write a BEIR folder with 40 texts and 12 queries, and return its relevance."""
    rng = random.Random(0)
    corpus = sorted(set(texts(60, seed)))[:40]
    queries = sorted({" ".join(text.split()[:3]) for text in texts(40, 2)})[:12]
    folder.mkdir()
    (folder / "qrels").mkdir()
    rows = [
        {"_id": f"d{k}", "title": text[:1], "text": text[1:].strip(), "metadata": {}}
        for k, text in enumerate(corpus)
    ]
    write_table(folder / "corpus.jsonl", rows)
    write_table(
        folder / "queries.jsonl", [{"_id": f"q{k}", "text": q} for k, q in enumerate(queries)]
    )
    relevance = {
        f"q{k}": {f"d{d}": rng.choice([1, 1, 2]) for d in rng.sample(range(40), 1 + k % 4)}
        for k in range(11)  # the last one is not judged
    }
    relevance["q0"]["d39"] = 0
    lines = ["query-id\tcorpus-id\tscore"] if not trec else []
    for query, grades in relevance.items():
        lines += [f"{query} 0 {d} {g}" if trec else f"{query}\t{d}\t{g}" for d, g in grades.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return relevance
