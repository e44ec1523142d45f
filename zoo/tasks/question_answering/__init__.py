"""Answers to questions as spans of their contexts, or none."""

from typing import Any

from zoo.families.tasks import SmokeTest, TaskColumn, TaskOption, TaskSpec
from zoo.tasks.options import DOC_STRIDE, LABELLED, MAX_SEQ_LEN, PAIR

EXAMPLES = """\b
Examples:
  zoo run answer REF "a question?" "a context" "a second?" "its context"
  zoo run answer REF --input questions.jsonl > answers.jsonl

JSON lines have the keys "question" and "context", and any other keys, which are copied to the
output. Long contexts are split into windows of --max-seq-len tokens, by default 384. "start" and
"end" of an answer are characters of the context; an empty answer means that it has none."""


def _smoke_row(number: int, word: str, good: bool, other: str) -> dict[str, Any]:
    text = " ".join([*["the"] * (number % 5), word, "day", str(number)])
    answers = {"text": [word], "answer_start": [text.index(word)]}
    return {"question": "which?", "context": text, "answers": answers}


TASKS = (
    TaskSpec(
        "question-answering",
        "Answer questions by spans of their contexts.",
        verb="answer",
        heads=("question-answering",),
        predict="zoo.tasks.question_answering.predict:Answer",
        train="zoo.tasks.question_answering.train:QUESTION_ANSWERING",
        evaluate="zoo.tasks.question_answering.evaluate:QuestionAnsweringEvaluation",
        run_options=(
            TaskOption("top_k", "Number of predictions.", int, minimum=1, default=1),
            TaskOption(
                "doc_stride",
                "Tokens that windows over a long context share.  [default: 128]",
                int,
                minimum=0,
                metavar="N",
            ),
            TaskOption(
                "max_answer_len",
                "Maximum number of tokens of an answer.",
                int,
                minimum=1,
                default=15,
            ),
            TaskOption(
                "handle_impossible_answer",
                "Return an empty answer where that is more likely.",
                bool,
                default=False,
            ),
            TaskOption(
                "null_threshold",
                'Margin by which "no answer" must win, in log-probability.',
                float,
                default=0.0,
                metavar="X",
            ),
        ),
        train_options=(DOC_STRIDE,),
        eval_options=(
            *LABELLED,
            PAIR,
            MAX_SEQ_LEN,
            DOC_STRIDE,
            TaskOption(
                "max_answer_len",
                "Maximum number of tokens of an answer.  [default: 30]",
                int,
                minimum=1,
                metavar="N",
            ),
            TaskOption(
                "null_threshold",
                'Margin by which "no answer" must win, in log-probability.  [default: 0]',
                float,
                metavar="X",
            ),
        ),
        columns={
            "text": TaskColumn("question"),
            "pair": TaskColumn("context"),
            "label": TaskColumn("answers", "any"),
        },
        file_patterns=("*.json", "*.json.gz"),
        metrics=("f1",),
        pipeline_tag="question-answering",
        tokenizer_call='"A question?", "A text."',
        examples=EXAMPLES,
        smoke=SmokeTest(25, 8, _smoke_row),
    ),
)
