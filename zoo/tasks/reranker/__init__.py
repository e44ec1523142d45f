"""Rerankers: cross-encoders that score texts for a query."""

from zoo.families.tasks import TaskOption, TaskSpec
from zoo.tasks.options import DIM, LABELLED, PAIR

NEGATIVE = TaskOption(
    "negative",
    "Column of texts that do not belong to the first; may be repeated.",
    metavar="COL",
    multiple=True,
)
TASKS = (
    TaskSpec(
        "reranker",
        "Rank the texts of a query by a score of each pair.",
        synonyms=("reranking", "text-ranking"),
        heads=("sequence-classification",),
        evaluate="zoo.tasks.reranker.evaluate:RerankerEvaluation",
        eval_options=(*LABELLED, PAIR, NEGATIVE, DIM),
        metrics=("ndcg_at_10",),
    ),
)
