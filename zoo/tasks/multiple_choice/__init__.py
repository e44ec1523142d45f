"""Choice of one of several texts for a context."""

from collections.abc import Mapping
from typing import Any

from zoo.families.tasks import SmokeTest, TaskColumn, TaskOption, TaskSpec
from zoo.tasks.options import LABELLED, MAX_SEQ_LEN, PAIR

EXAMPLES = """\b
Examples:
  zoo run choose REF "a context" --choice "a text" --choice "another"
  zoo run choose REF "a context" --question "Who is _?" \\
      --choice "a text" --choice "another"
  zoo run choose REF --input questions.jsonl > choices.jsonl

JSON lines have the keys "context" and "choices", a list, optionally "question", and any other keys,
which are copied to the output. A choice replaces "_" in the question, or follows it. "label" is the
index of the best choice, "scores" are the probabilities of all."""
COLUMNS = TaskOption(
    "choices",
    "Column of the choices, or of each of them.",
    metavar="COL",
    multiple=True,
    setting="data.choices",
)

# Default column -> names in published tables (SWAG, HellaSwag, RACE, ARC), which stand in for
# a missing one.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "context": ("ctx", "article", "sent1"),
    "question": ("start", "sent2"),
    "choices": ("endings", "options"),
    "label": ("answer", "answerKey"),
}
# The first of several columns of one choice each.
FIRST_CHOICES = ("ending0", "ending1", "choice0", "choice1", "option0", "option1")


def _smoke_row(number: int, word: str, good: bool, other: str) -> dict[str, Any]:
    choices, label = ([word, other], 0) if number % 2 else ([other, word], 1)
    return {
        "context": f"day {number}",
        "choices": choices,
        "label": label if good else 1 - label,
    }


TASKS = (
    TaskSpec(
        "multiple-choice",
        "Choose one of several texts for a context.",
        verb="choose",
        heads=("multiple-choice",),
        predict="zoo.tasks.multiple_choice.predict:Choose",
        train="zoo.tasks.multiple_choice.train:MULTIPLE_CHOICE",
        evaluate="zoo.tasks.multiple_choice.evaluate:MultipleChoiceEvaluation",
        run_options=(
            TaskOption(
                "choices",
                "One of the choices; repeat it.",
                flag="--choice",
                metavar="TEXT",
                multiple=True,
            ),
            TaskOption(
                "choice_columns",
                COLUMNS.help,
                flag="--choices",
                metavar="COL",
                multiple=True,
            ),
            TaskOption("question", "Question on all contexts.", metavar="TEXT"),
        ),
        train_options=(COLUMNS,),
        eval_options=(*LABELLED, PAIR, MAX_SEQ_LEN, COLUMNS),
        columns={
            "text": TaskColumn("context", aliases=ALIASES["context"]),
            "pair": TaskColumn(required=False),
            "choices": TaskColumn("choices", "any", aliases=(*ALIASES["choices"], *FIRST_CHOICES)),
            "label": TaskColumn("label", "class", aliases=ALIASES["label"]),
        },
        metrics=("accuracy",),
        pipeline_tag="multiple-choice",
        tokenizer_call='["A text."] * 2, ["One.", "Another."], padding=True',
        model_call="model(**{name: value[None] for name, value in inputs.items()})",
        examples=EXAMPLES,
        smoke=SmokeTest(25, 16, _smoke_row),
    ),
)
