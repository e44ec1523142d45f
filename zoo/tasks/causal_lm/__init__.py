"""Continuation of texts, and completion of prompts."""

from zoo.families.tasks import TaskColumn, TaskSpec
from zoo.tasks.options import (
    DOCUMENT_FILES,
    EVAL_METRIC,
    GENERATION,
    LABELLED,
    METRIC,
    NEW_TOKENS,
    NUM_BEAMS,
)

TASKS = (
    TaskSpec(
        "causal-lm",
        "Generate a continuation of a text, or the completion of a prompt.",
        verb="generate",
        synonyms=("text-generation",),
        heads=("causal-lm",),
        predict="zoo.tasks.causal_lm.predict:Generate",
        train="zoo.tasks.causal_lm.train:CAUSAL_LM",
        evaluate="zoo.tasks.causal_lm.evaluate:Completions",
        run_options=GENERATION,
        columns={"text": TaskColumn("text"), "label": TaskColumn(required=False)},
        eval_columns={"text": TaskColumn("text"), "label": TaskColumn("label")},
        file_patterns=DOCUMENT_FILES,
        train_options=(METRIC,),
        eval_options=(*LABELLED, NUM_BEAMS, NEW_TOKENS, EVAL_METRIC),
        pipeline_tag="text-generation",
    ),
)
