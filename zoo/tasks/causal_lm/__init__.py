"""Continuation of texts, and completion of prompts."""

from zoo.families.tasks import TaskSpec
from zoo.tasks.options import GENERATION, LABELLED

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
        eval_options=LABELLED,
        pipeline_tag="text-generation",
    ),
)
