"""``zoo eval`` next to the evaluators of sentence-transformers and MTEB, on the same texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zoo
from benchmarks._mteb_tasks import pair_scores, retrieval_scores

NEGATIVES = 9  # texts that are reranked with the relevant ones
ROUNDED = 1e-6  # a difference of cosines in float32
TIED = 14  # pairs that are there twice; both texts of all fit in a batch of the libraries
PAIRS = ("sentence_A", "sentence_B")
Scores = Mapping[str, float]


@dataclass(frozen=True)
class Judged:
    """Queries, texts and relevance: a text that a query entails is relevant."""

    queries: Mapping[str, str]  # id -> text
    corpus: Mapping[str, str]  # id -> text
    relevant: Mapping[str, Sequence[str]]  # query -> texts

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]]) -> "Judged":
        """Return the texts of SICK, each once."""
        first, second = ([row[name] for row in rows] for name in PAIRS)
        queries = {text: f"q{k}" for k, text in enumerate(dict.fromkeys(first))}
        corpus = {text: f"d{k}" for k, text in enumerate(dict.fromkeys(second))}
        relevant: dict[str, list[str]] = {}
        for a, b, label in zip(first, second, entailed(rows), strict=True):
            if label and corpus[b] not in relevant.setdefault(queries[a], []):
                relevant[queries[a]].append(corpus[b])
        by_id = [{number: text for text, number in side.items()} for side in (queries, corpus)]
        return cls(by_id[0], by_id[1], relevant)

    def twice(self) -> "tuple[Judged, Judged]":
        """Return each text twice, with one copy relevant, and then with the other copy relevant.

        With one relevant text for each query, the expectation over the order of both is the mean.
        """
        corpus = {f"{name}{end}": text for name, text in self.corpus.items() for end in "ab"}
        judged = [
            Judged(
                self.queries,
                corpus,
                {q: [f"{names[0]}{end}"] for q, names in self.relevant.items()},
            )
            for end in "ab"
        ]
        return judged[0], judged[1]

    def candidates(self, query: str) -> list[str]:
        """Return the texts that are reranked for a query."""
        own = self.relevant[query]
        texts = {self.corpus[name] for name in own}
        first = [name for name in self.corpus if name in own or self.corpus[name] in texts]
        return [*first, *[name for name in self.corpus if name not in first][:NEGATIVES]]

    def write(self, folder: Path) -> dict[str, str]:
        """Write the files of ``zoo eval --task retrieval``, and return its options."""
        folder.mkdir()
        for file, texts in (("corpus", self.corpus), ("queries", self.queries)):
            rows = [{"_id": name, "text": text} for name, text in texts.items()]
            write_rows(folder / f"{file}.jsonl", rows)
        lines = [f"{q} 0 {name} 1" for q, names in self.relevant.items() for name in names]
        (folder / "qrels.txt").write_text("\n".join(lines) + "\n", "utf-8")
        return {"queries": str(folder / "queries.jsonl"), "qrels": str(folder / "qrels.txt")}


def compare_evaluators(
    folder: Path, rows: Sequence[Mapping[str, str]], model: Path, peer: Any
) -> dict[str, float]:
    """Return the largest differences from the evaluators of sentence-transformers and of MTEB."""
    judged = Judged.of(rows)
    once = OurScores(model, folder / "once")
    twice = OurScores(model, folder / "twice")
    found = {
        **against_library(once, judged, rows, peer),
        **against_mteb(once, judged, rows, peer),
        **with_ties(twice, judged, rows, peer),
    }
    return {name: max(differences) for name, differences in found.items()}


class OurScores:
    """The metrics of ``zoo eval`` of a model, in a new folder."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model = model
        self.folder = folder
        folder.mkdir()

    def evaluate(self, task: str, data: Path, **options: Any) -> Scores:
        """Return the metrics of a task."""
        return zoo.evaluate(self.model, task=task, eval=data, backend="cpu", **options).metrics

    def retrieval(self, judged: Judged) -> Scores:
        """Return the metrics over the whole corpus."""
        options = judged.write(self.folder / "beir")
        return self.evaluate("retrieval", self.folder / "beir" / "corpus.jsonl", **options)

    def reranking(self, judged: Judged) -> Scores:
        """Return the metrics over the candidates."""
        lists = []
        for query, own in judged.relevant.items():
            names = judged.candidates(query)
            documents = [judged.corpus[name] for name in names]
            grades = [int(name in own) for name in names]
            lists.append({"text": judged.queries[query], "pair": documents, "label": grades})
        data = write_rows(self.folder / "lists.jsonl", lists)
        return self.evaluate("reranker", data, pair="pair", label="label")

    def pairs(self, pairs: Sequence[tuple[str, str]], labels: Sequence[float], task: str) -> Scores:
        """Return the metrics of pairs with classes or scores."""
        rows = [{"text": a, "pair": b, "label": n} for (a, b), n in zip(pairs, labels, strict=True)]
        data = write_rows(self.folder / f"{task}.jsonl", rows)
        return self.evaluate(task, data, pair="pair", label="label")


def against_library(
    ours: OurScores, judged: Judged, rows: Sequence[Mapping[str, str]], peer: Any
) -> dict[str, list[float]]:
    """Return the differences from each evaluator of sentence-transformers."""
    import sentence_transformers.sentence_transformer.evaluation as library

    evaluation: Any = library
    pairs = pairs_of(rows)
    scores = [float(row["relatedness_score"]) for row in rows]
    first, second = [list(side) for side in zip(*pairs, strict=True)]
    samples = [
        {
            "query": judged.queries[query],
            "positive": [judged.corpus[name] for name in own],
            "negative": [judged.corpus[n] for n in judged.candidates(query) if n not in own],
        }
        for query, own in judged.relevant.items()
    ]
    sets = {query: set(names) for query, names in judged.relevant.items()}
    retrieval = ours.retrieval(judged)
    reranking = ours.reranking(judged)
    classified = apart(rows, peer)
    left, right = [list(side) for side in zip(*pairs_of(classified), strict=True)]
    binary = ours.pairs(pairs_of(classified), entailed(classified), "pair-classification")
    similar = ours.pairs(pairs, scores, "sentence-embedding")
    compared: list[tuple[Any, dict[str, float]]] = [
        (
            evaluation.InformationRetrievalEvaluator(
                judged.queries, judged.corpus, sets, write_csv=False
            ),
            {
                "cosine_ndcg@10": retrieval["ndcg_at_10"],
                "cosine_mrr@10": retrieval["mrr_at_10"],
                "cosine_map@100": retrieval["map_at_100"],
                "cosine_accuracy@1": retrieval["accuracy"],
                **{f"cosine_recall@{k}": retrieval[f"recall_at_{k}"] for k in (1, 5, 10)},
            },
        ),
        (
            evaluation.RerankingEvaluator(samples, at_k=10, write_csv=False),
            {
                "map": reranking["map"],
                "mrr@10": reranking["mrr_at_10"],
                "ndcg@10": reranking["ndcg_at_10"],
            },
        ),
        (
            evaluation.BinaryClassificationEvaluator(
                left, right, entailed(classified), similarity_fn_names=["cosine"], write_csv=False
            ),
            {
                "cosine_accuracy": binary["accuracy"],
                "cosine_f1": binary["f1"],
                "cosine_ap": binary["average_precision"],
                "cosine_mcc": binary["matthews_correlation"],
            },
        ),
        (
            evaluation.EmbeddingSimilarityEvaluator(
                first, second, scores, main_similarity="cosine", write_csv=False
            ),
            {"pearson_cosine": similar["pearson"], "spearman_cosine": similar["spearman"]},
        ),
    ]
    return {
        f"sentence-transformers, {type(evaluator).__name__}": differences(evaluator(peer), mine)
        for evaluator, mine in compared
    }


def against_mteb(
    ours: OurScores, judged: Judged, rows: Sequence[Mapping[str, str]], peer: Any
) -> dict[str, list[float]]:
    """Return the differences from the tasks of MTEB, which rounds to five digits."""
    classified = apart(rows, peer)
    pairs = pairs_of(classified)
    labels = entailed(classified)
    again = OurScores(ours.model, ours.folder / "mteb")
    binary = again.pairs(pairs, labels, "pair-classification")
    wanted = {
        "cosine_ap": binary["average_precision"],
        "cosine_accuracy": binary["accuracy"],
        "cosine_f1": binary["f1"],
    }
    return {
        "MTEB, retrieval": differences(mteb_scores(peer, judged), ranked(again.retrieval(judged))),
        "MTEB, reranking": differences(
            mteb_scores(peer, judged, rerank=True), ranked(again.reranking(judged), reranked=True)
        ),
        "MTEB, pair classification": differences(pair_scores(peer, pairs, labels), wanted),
    }


def with_ties(
    ours: OurScores, judged: Judged, rows: Sequence[Mapping[str, str]], peer: Any
) -> dict[str, list[float]]:
    """Return the differences where texts are there twice: from the mean over their orders."""
    import sentence_transformers.sentence_transformer.evaluation as library

    evaluation: Any = library
    both = judged.twice()
    retrieval = ours.retrieval(both[0])
    reranking = ours.reranking(both[0])
    theirs = [
        evaluation.InformationRetrievalEvaluator(
            part.queries,
            part.corpus,
            {query: set(names) for query, names in part.relevant.items()},
            write_csv=False,
        )(peer)
        for part in both
    ]
    chosen = rows[:TIED]
    pairs = pairs_of(chosen)
    labels = entailed(chosen)
    # each pair has both labels in part of the data, and none of them is told from the other
    pairs = pairs * 2
    labels = [*labels, *(1 - n if k % 2 else n for k, n in enumerate(labels))]
    binary = ours.pairs(pairs, labels, "pair-classification")
    return {
        "sentence-transformers, retrieval with ties": differences(
            mean(theirs),
            {
                "cosine_ndcg@10": retrieval["ndcg_at_10"],
                "cosine_mrr@10": retrieval["mrr_at_10"],
                "cosine_accuracy@1": retrieval["accuracy"],
                "cosine_recall@5": retrieval["recall_at_5"],
            },
        ),
        "MTEB, retrieval with ties": differences(
            mean([mteb_scores(peer, part) for part in both]), ranked(retrieval)
        ),
        "MTEB, reranking with ties": differences(
            mean([mteb_scores(peer, part, rerank=True) for part in both]),
            ranked(reranking, reranked=True),
        ),
        "MTEB, pair classification with ties": differences(
            pair_scores(peer, pairs, labels), {"cosine_ap": binary["average_precision"]}
        ),
    }


def mteb_scores(peer: Any, judged: Judged, *, rerank: bool = False) -> Scores:
    """Return the scores of MTEB; reranking is of the candidates."""
    judged_queries = {query: judged.queries[query] for query in judged.relevant}
    grades = {query: dict.fromkeys(names, 1) for query, names in judged.relevant.items()}
    candidates = {query: judged.candidates(query) for query in judged_queries} if rerank else None
    return retrieval_scores(peer, judged_queries, judged.corpus, grades, candidates)


def ranked(scores: Scores, *, reranked: bool = False) -> Scores:
    """Return our metrics by the names of MTEB."""
    recalls = {} if reranked else {f"recall_at_{k}": scores[f"recall_at_{k}"] for k in (5, 10, 100)}
    names = ("ndcg_at_10", "mrr_at_10")
    return {**{n: scores[n] for n in names}, "map_at_1000": scores["map"], **recalls}


def differences(theirs: Mapping[str, Any], ours: Scores) -> list[float]:
    """Return the absolute differences of the metrics that are ours."""
    return [abs(float(theirs[name]) - value) for name, value in ours.items()]


def mean(scores: Sequence[Mapping[str, Any]]) -> Scores:
    """Return the mean of each metric that is a number."""
    numbers = [name for name, value in scores[0].items() if isinstance(value, (int, float))]
    return {name: sum(float(s[name]) for s in scores) / len(scores) for name in numbers}


def entailed(rows: Sequence[Mapping[str, str]]) -> list[int]:
    """Return whether the first text of each pair entails the second, as 1 or 0."""
    return [int(row["entailment_judgment"] == "ENTAILMENT") for row in rows]


def apart(rows: Sequence[Mapping[str, str]], peer: Any) -> list[Mapping[str, str]]:
    """Return rows whose similarities differ by more than both sides round them."""
    # average precision changes by 1e-4 where two pairs change places
    first, second = (
        peer.encode([row[name] for row in rows], normalize_embeddings=True) for name in PAIRS
    )
    similarities = (first * second).sum(1)
    kept: list[int] = []
    for row in similarities.argsort():
        if not kept or similarities[row] - similarities[kept[-1]] > ROUNDED:
            kept.append(int(row))
    return [rows[row] for row in sorted(kept)]


def pairs_of(rows: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return both texts of each pair."""
    return [(row[PAIRS[0]], row[PAIRS[1]]) for row in rows]


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file
