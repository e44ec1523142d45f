"""Vectors of texts that are close where the texts belong together."""

from zoo.families.tasks import TaskSpec
from zoo.tasks.options import (
    DIM,
    EVAL_NEGATIVES,
    EVAL_WINDOW_POOLING,
    LABELLED,
    MAX_SEQ_LEN,
    NEGATIVES,
    PAIR,
    PAIR_COLUMNS,
    PASSAGES,
    PROMPTS,
    REPRESENTATION,
    VECTORS,
    WINDOW_POOLING,
    WINDOWS,
)

EXAMPLES = """\b
Examples:
  zoo run similarity REF "a text" "another text" "a third" "a fourth"
  zoo run similarity REF --input pairs.jsonl > results.jsonl

JSON lines have the keys "text" and "text_pair", and any other keys, which are copied to the output.
Texts longer than the model allows are truncated; "truncated" is the number of tokens that were
cut."""

TASKS = (
    TaskSpec(
        "sentence-embedding",
        "Compute a vector for each text.",
        verb="embed",
        synonyms=("sentence-similarity",),
        heads=("none",),
        predict="zoo.inference.embed:Embed",
        train="zoo.tasks.sentence_embedding.train:SENTENCE_EMBEDDING",
        evaluate="zoo.tasks.sentence_embedding.evaluate:SentenceEmbeddingEvaluation",
        run_options=(*PROMPTS, REPRESENTATION, *VECTORS, WINDOWS, WINDOW_POOLING, *PASSAGES),
        train_options=(NEGATIVES,),
        losses="zoo.finetuning.embeddings.losses:loss_types",
        columns=PAIR_COLUMNS,
        settings=("data.labels", "data.eval_score"),
        eval_options=(
            *LABELLED,
            PAIR,
            EVAL_NEGATIVES,
            DIM,
            MAX_SEQ_LEN,
            WINDOWS,
            EVAL_WINDOW_POOLING,
        ),
        metrics=("spearman", "mrr"),  # of pairs with scores, else of retrieval
        pipeline_tag="feature-extraction",
    ),
    TaskSpec(
        "similarity",
        "Compute the similarity of the two texts of each pair.",
        heads=("none",),
        predict="zoo.tasks.sentence_embedding.similarity:Similarity",
        run_options=(*PROMPTS, REPRESENTATION, WINDOWS, WINDOW_POOLING),
        examples=EXAMPLES,
    ),
)
