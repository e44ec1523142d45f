"""Rerankers: cross-encoders that score texts for a query."""

from dataclasses import replace

from zoo.families.tasks import TaskOption, TaskSpec
from zoo.tasks.options import (
    CORPUS_PROMPTS,
    CORPUS_TEXT,
    DIM,
    DOC_STRIDE,
    EVAL_NEGATIVES,
    EVAL_WINDOW_POOLING,
    LABELLED,
    MAX_SEQ_LEN,
    PAIR,
    PAIR_COLUMNS,
    QUERY_PROMPTS,
    REPRESENTATIONS,
    SCORE_POOLING,
    WINDOWS,
)

EXAMPLES = """\b
Examples:
  zoo run rerank REF --query "a question" --input texts.txt --top-k 5
  zoo run rerank REF --query "a question" "a text" "another text"

A cross-encoder reads the query with each text; other models compare embeddings, by their own
similarity. Results are sorted, best first: "corpus_id" is the number of the text in the input.
With --doc-stride, a long text is read in windows, and scored by the best one."""

TASKS = (
    TaskSpec(
        "reranker",
        "Rank the texts of a query by a score of each pair.",
        verb="rerank",
        synonyms=("reranking", "text-ranking"),
        heads=("sequence-classification",),
        predict="zoo.tasks.reranker.rerank:Rerank",
        run_options=(
            TaskOption("query", "The query.", metavar="TEXT"),
            *QUERY_PROMPTS,
            *CORPUS_PROMPTS,
            REPRESENTATIONS,
            WINDOWS,
            SCORE_POOLING,
            TaskOption("top_k", "Number of texts to return.  [default: all]", int, minimum=1),
        ),
        text_flag=CORPUS_TEXT.flags,
        examples=EXAMPLES,
        train="zoo.tasks.reranker.train:RERANKER",
        evaluate="zoo.tasks.reranker.evaluate:RerankerEvaluation",
        train_options=(
            replace(EVAL_NEGATIVES, setting="data.negatives"),
            DOC_STRIDE,
            replace(SCORE_POOLING, setting="task_args.window_pooling"),
        ),
        eval_options=(
            *LABELLED,
            PAIR,
            EVAL_NEGATIVES,
            *QUERY_PROMPTS,
            *CORPUS_PROMPTS,
            DIM,
            MAX_SEQ_LEN,
            WINDOWS,
            EVAL_WINDOW_POOLING,
        ),
        columns=PAIR_COLUMNS,
        metrics=("ndcg_at_10",),
    ),
)
