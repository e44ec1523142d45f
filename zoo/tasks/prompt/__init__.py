"""Classification and answers by prompts, without training or after training with a prompt."""

from dataclasses import replace
from pathlib import Path

from zoo.families.tasks import TaskOption, TaskSpec
from zoo.tasks.options import LABEL_COLUMNS, LABELLED, MAX_SEQ_LEN, NEW_TOKENS, PAIR

SCORINGS = ("likelihood", "normalized", "generate")
SHOT_LABELS = ("gold", "random", "permuted", "none")
SEPARATOR = "\n\n"  # between examples
CONTENT_FREE = "N/A"  # as in the paper on calibration
EXAMPLES = """\b
Examples:
  zoo run prompt REF "A fine film." --template "{text} It was {label}." \\
      --label-words positive=great,negative=terrible
  zoo run prompt REF --input reviews.csv --template pattern.txt \\
      --label-words good,bad --shots 4 --shots-from train.csv --calibrate
  zoo run prompt REF "Q" --template "Question: {text} Answer: {label}" \\
      --scoring generate --samples 20 --vote --answer "answer is (.*?)\\."

A template has the slots {text}, {text_pair} for the second text of a pair, {label}, and, for
generated answers, {rationale} for a chain of thought. The label with the most probable word wins;
"scores" are probabilities, "log_probs" those of the words. A causal model reads {label} at the end
of the template."""
WORDS = TaskOption(
    "label_words",
    "Words that stand for labels; without LABEL=, the word is the label.",
    metavar="[LABEL=]WORD,...",
)
TEMPLATE = TaskOption(
    "template", "Text with {text} and {label}, or its file.", Path, metavar="FILE|TEXT"
)
SCORING = TaskOption(
    "scoring",
    "Choose by the likelihood of words, by the likelihood per token, or generate.",
    choices=SCORINGS,
    default="likelihood",
)
SHOTS = (
    TaskOption("shots", "Number of examples before each text.", int, minimum=1, metavar="N"),
    TaskOption("shots_from", "Table that the examples are from.", Path, metavar="FILE"),
    TaskOption("separator", "Text after each example.  [default: an empty line]", metavar="TEXT"),
)
RATIONALE_COLUMN = TaskOption(
    "rationale",
    "Column of the chains of thought of examples, for the slot {rationale}.  [default: rationale]",
    metavar="COL",
)
ANSWER = TaskOption(
    "answer",
    "Regular expression of the answer in generated text: the first group of its last match.  "
    '[default: the first line; after a {rationale} what follows "answer is", or the last number]',
    metavar="REGEX",
)
ANSWER_PROMPT = TaskOption(
    "answer_prompt",
    "Generate the answer by a second prompt: the first, the {rationale} and this text, such as "
    '"Therefore, the answer is".',
    metavar="TEXT",
)
SAMPLES = TaskOption(
    "samples", "Number of texts to sample.", int, minimum=1, maximum=1000, metavar="N"
)
SAMPLING = (
    TaskOption("temperature", "Sampling temperature.", float, minimum=0, exclusive=True),
    TaskOption("top_k", "Sample from the K most likely tokens.", int, minimum=1),
)
CALIBRATION = (
    TaskOption(
        "calibrate",
        "Divide probabilities by those for a text without content, N/A.",
        bool,
        default=False,
    ),
    TaskOption(
        "content_free", "Such a text in place of N/A; repeat it.", metavar="TEXT", multiple=True
    ),
)
# An evaluation crosses several templates and words.
VARIED = (
    replace(TEMPLATE, help=f"{TEMPLATE.help}  May be repeated.", multiple=True),
    replace(WORDS, help=f"{WORDS.help}  May be repeated.", multiple=True),
)
# Options of fine-tuning.
TRAIN_OPTIONS = (
    TaskOption(
        "template",
        "Text with {text} and {label}, or its file; of pet several.",
        Path,
        metavar="FILE|TEXT",
        multiple=True,
        setting="task_args.template",
    ),
    replace(WORDS, setting="task_args.label_words"),
    TaskOption(
        "unlabelled",
        "Table of texts without labels; may be repeated.",
        Path,
        metavar="FILE",
        multiple=True,
        setting="data.unlabelled",
    ),
)

TASKS = (
    TaskSpec(
        "prompt",
        "Classify or answer by a prompt.",
        heads=("masked-lm",),
        train="zoo.tasks.prompt.train:PROMPT",
        train_options=TRAIN_OPTIONS,
        columns=LABEL_COLUMNS,
        predict="zoo.tasks.prompt.predict:Prompting",
        evaluate="zoo.tasks.prompt.evaluate:PromptEvaluation",
        run_options=(
            TEMPLATE,
            WORDS,
            SCORING,
            *SHOTS,
            TaskOption(
                "label", "Column of the label of examples.  [default: label]", metavar="COL"
            ),
            *CALIBRATION,
            RATIONALE_COLUMN,
            SAMPLES,
            TaskOption("vote", "Return the most frequent answer of the samples.", bool),
            ANSWER,
            ANSWER_PROMPT,
            TaskOption("max_new_tokens", "Maximum number of new tokens.", int, minimum=1),
            *SAMPLING,
            TaskOption("seed", "Seed of examples and samples.", int, minimum=0, default=0),
        ),
        eval_options=(
            *LABELLED,
            PAIR,
            MAX_SEQ_LEN,
            *VARIED,
            TaskOption(
                "templates",
                "YAML or JSON file of named templates, each perhaps with its label words.",
                Path,
                metavar="FILE",
            ),
            replace(SCORING, default=None),
            *SHOTS,
            TaskOption("seeds", "Number of selections of examples.", int, minimum=1, metavar="N"),
            TaskOption(
                "orders",
                "Number of different orders of each selection, or all of them.",
                metavar="N|all",
            ),
            TaskOption(
                "shot_labels",
                "Labels of the examples: their own, uniformly random ones, their own shuffled, or "
                "no examples; may be repeated.  [default: gold]",
                choices=SHOT_LABELS,
                multiple=True,
            ),
            TaskOption(
                "wrong_labels",
                "Also give this share of the examples wrong labels; may be repeated.",
                float,
                minimum=0,
                maximum=1,
                metavar="SHARE",
                multiple=True,
            ),
            replace(CALIBRATION[0], default=None),
            CALIBRATION[1],
            RATIONALE_COLUMN,
            ANSWER,
            ANSWER_PROMPT,
            replace(
                SAMPLES,
                help="Sample N answers to each text, and take the most frequent: self-consistency.",
            ),
            NEW_TOKENS,
            *SAMPLING,
        ),
        examples=EXAMPLES,
    ),
)
