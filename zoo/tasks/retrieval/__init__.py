"""Retrieval of texts from a corpus for queries, with relevance that was judged."""

from pathlib import Path

from zoo.families.tasks import TaskOption, TaskSpec
from zoo.tasks.options import (
    CORPUS_PROMPTS,
    CORPUS_TEXT,
    DIM,
    EVAL_WINDOW_POOLING,
    MAX_SEQ_LEN,
    PASSAGES,
    QUERY_PROMPTS,
    QUERY_TEXT,
    REPRESENTATIONS,
    SCORE_POOLING,
    SEED,
    WINDOWS,
)

EXAMPLES = """\b
Examples:
  zoo run search REF --corpus texts.jsonl --queries queries.txt --top-k 10
  zoo run search REF --corpus texts.jsonl "a question" "another question"
  zoo run search REF --corpus articles.csv --corpus-text body \\
      --queries questions.csv --query-text question
  zoo run search REF --corpus papers.jsonl --chunks sentences "a question"
  zoo run search REF --corpus papers.jsonl --doc-stride 64 "a question"
  zoo run embed REF --input articles.csv --text body -o articles.parquet
  zoo run search REF --index articles.parquet "a question"

Each result has the best texts of the corpus, best first: "corpus_id" is the number of the text in
its file. With --chunks, the texts are passages, and "document", "start" and "end" are their place;
with --doc-stride, "window" has the characters of a text's best window. The search compares all
texts, unless --search-method says otherwise. The vectors of the corpus are in a temporary file;
--index reads vectors that zoo run embed stored."""

TASKS = (
    TaskSpec(
        "retrieval",
        "Find the texts of a corpus that are relevant for queries.",
        verb="search",
        predict="zoo.tasks.retrieval.search:Search",
        run_options=(
            TaskOption("corpus", "File of the texts to search.", Path, metavar="FILE"),
            CORPUS_TEXT,
            TaskOption(
                "index",
                "Vectors of the texts, which zoo run embed wrote: .npy, .parquet or a folder. "
                "Texts of .npy may be named with --corpus.",
                Path,
                metavar="PATH",
            ),
            TaskOption(
                "search_method",
                "Search of an index: exact, or by faiss-cpu: hnsw, a graph, or int8 or binary, "
                "smaller vectors whose best texts are scored again.",
                choices=("exact", "hnsw", "int8", "binary"),
                default="exact",
            ),
            TaskOption(
                "rescore_multiplier",
                "Texts that int8 and binary score again for each result.",
                int,
                minimum=1,
                default=4,
            ),
            TaskOption("top_k", "Number of texts for each query.", int, minimum=1, default=10),
            *QUERY_PROMPTS,
            *CORPUS_PROMPTS,
            REPRESENTATIONS,
            WINDOWS,
            SCORE_POOLING,
            *PASSAGES,
        ),
        input_flag="--queries",
        text_flag=QUERY_TEXT.flags,
        examples=EXAMPLES,
        file_patterns=("queries.jsonl",),
        evaluate="zoo.tasks.retrieval.evaluate:RetrievalEvaluation",
        eval_options=(
            TaskOption(
                "queries",
                "Queries, with a column _id or id, or numbered from 0.  [default: queries.jsonl of "
                "a BEIR folder]",
                Path,
                metavar="FILE",
            ),
            QUERY_TEXT,
            CORPUS_TEXT,
            TaskOption(
                "qrels",
                "Relevance of texts, in TREC's format or BEIR's.  [default: qrels/SPLIT.tsv of a "
                "BEIR folder]",
                Path,
                metavar="FILE",
            ),
            TaskOption("split", "Split of a BEIR folder.  [default: test]", metavar="SPLIT"),
            TaskOption(
                "ignore_identical_ids",
                "Rank a text last that has the id of its query, as BEIR does for ArguAna.",
                bool,
            ),
            *QUERY_PROMPTS,
            *CORPUS_PROMPTS,
            DIM,
            MAX_SEQ_LEN,
            WINDOWS,
            EVAL_WINDOW_POOLING,
            SEED,
        ),
        metrics=("ndcg_at_10",),
    ),
)
