"""Retrieval of texts from a corpus for queries, with relevance that was judged."""

from pathlib import Path

from zoo.families.tasks import TaskOption, TaskSpec
from zoo.tasks.options import DIM, SEED

TASKS = (
    TaskSpec(
        "retrieval",
        "Find the texts of a corpus that are relevant for queries.",
        evaluate="zoo.tasks.retrieval.evaluate:RetrievalEvaluation",
        eval_options=(
            TaskOption(
                "queries",
                "Queries, with the columns _id and text.  [default: queries.jsonl of a BEIR "
                "folder]",
                Path,
                metavar="FILE",
            ),
            TaskOption(
                "qrels",
                "Relevance of texts, in TREC's format or BEIR's.  [default: qrels/SPLIT.tsv of a "
                "BEIR folder]",
                Path,
                metavar="FILE",
            ),
            TaskOption("split", "Split of a BEIR folder.  [default: test]", metavar="NAME"),
            DIM,
            SEED,
        ),
        metrics=("ndcg_at_10",),
    ),
)
