"""Classification by labels in words, without training, by a model of natural language inference."""

from zoo.families.tasks import TaskColumn, TaskOption, TaskSpec
from zoo.tasks.options import (
    EVAL_WINDOW_POOLING,
    LABELLED,
    MAX_SEQ_LEN,
    WINDOW_POOLING,
    WINDOWS,
)
from zoo.tasks.prompt import VARIED

TEMPLATE = "This example is {}."  # as in transformers' pipeline
EXAMPLES = """\b
Examples:
  zoo run zero-shot REF "Who won the match?" --label sports --label politics
  zoo run zero-shot REF --input news.csv --text title -o topics.csv \\
      --label sports --label politics --template "This text is about {}."

REF is a model of natural language inference, with a label that begins with "entail". Each label
replaces {} in the template, which makes a hypothesis on the text. "labels" are ordered by
probability, "scores" are the probabilities. Long texts are truncated, or read in windows with
--doc-stride; hypotheses are not."""

TASKS = (
    TaskSpec(
        "zero-shot",
        "Classify texts by labels that need no training.",
        synonyms=("zero-shot-classification",),
        predict="zoo.tasks.zero_shot.predict:ZeroShot",
        evaluate="zoo.tasks.zero_shot.evaluate:ZeroShotEvaluation",
        run_options=(
            TaskOption(
                "label",
                "One of the labels; repeat it.",
                metavar="TEXT",
                multiple=True,
            ),
            TaskOption(
                "template",
                "Hypothesis on a text; {} stands for the label.",
                default=TEMPLATE,
                metavar="TEXT",
            ),
            TaskOption(
                "multi_label",
                "Score each label on its own: several may be true of a text.",
                bool,
                default=False,
            ),
            WINDOWS,
            WINDOW_POOLING,
        ),
        columns={"text": TaskColumn("text"), "label": TaskColumn("label", "class")},
        eval_options=(*LABELLED, MAX_SEQ_LEN, WINDOWS, EVAL_WINDOW_POOLING, *VARIED),
        examples=EXAMPLES,
    ),
)
