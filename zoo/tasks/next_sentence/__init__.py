"""The heads that were pretrained on pairs: does a text follow another, and in which order?"""

from zoo.families.tasks import TaskSpec

EXAMPLES = """\b
Examples:
  zoo run {0} REF "The cat sat down." "It fell asleep."
  zoo run {0} REF --input pairs.jsonl > results.jsonl

JSON lines have the keys "text" and "text_pair", and any other keys, which are copied to the output.
Texts longer than the model allows are truncated; "truncated" is the number of tokens that were
cut."""

TASKS = (
    TaskSpec(
        "next-sentence",
        "Predict whether the second text of a pair follows the first.",
        predict="zoo.tasks.next_sentence.predict:PredictNextSentence",
        examples=EXAMPLES.format("next-sentence"),
    ),
    TaskSpec(
        "sentence-order",
        "Predict whether the texts of a pair are in order or swapped.",
        predict="zoo.tasks.next_sentence.predict:PredictSentenceOrder",
        examples=EXAMPLES.format("sentence-order"),
    ),
    TaskSpec(
        "sentence-structure",
        "Predict whether the second text of a pair follows, precedes or has nothing to do with the "
        "first.",
        predict="zoo.tasks.next_sentence.predict:PredictSentenceStructure",
        examples=EXAMPLES.format("sentence-structure"),
    ),
)
