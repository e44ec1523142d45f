"""Fine-tuning on labelled data: one file a task, on the trainer of pretraining.

The module of a task is imported on first use.
"""

from typing import TYPE_CHECKING

from zoo.io.named import import_named

if TYPE_CHECKING:
    from zoo.finetune.base import FineTuning

# name -> (class, one-line help)
TASKS = {
    "text-classification": (
        "zoo.finetune.tasks.classification:TextClassification",
        "One label of a text or a pair of texts.",
    ),
    "regression": ("zoo.finetune.tasks.regression:Regression", "A number for a text or a pair."),
    "token-classification": (
        "zoo.finetune.tasks.tokens:TokenClassification",
        "A label of each word: entities, parts of speech.",
    ),
    "multi-label": ("zoo.finetune.tasks.multi_label:MultiLabel", "Any number of labels of a text."),
    "sentence-embedding": (
        "zoo.finetune.tasks.embedding:SentenceEmbedding",
        "Similar vectors of texts that belong together.",
    ),
    "causal-lm": (
        "zoo.finetune.tasks.causal:CausalLanguageModelling",
        "The next token of texts, or of completions of prompts.",
    ),
    "seq2seq": ("zoo.finetune.tasks.seq2seq:Seq2Seq", "A target text for a source text."),
    "question-answering": (
        "zoo.finetune.tasks.answers:QuestionAnswering",
        "The span of a context that answers a question, or none.",
    ),
    "multiple-choice": (
        "zoo.finetune.tasks.choices:MultipleChoice",
        "One of several texts for a context.",
    ),
}


DISTILLATION_TASKS = {"sentences": "zoo.finetune.tasks.sentences:Sentences"}  # without a loss


def task_type(name: str) -> "type[FineTuning]":
    """Return the class of a task.

    Raises:
        UsageError: no task has that name; the nearest is named.
    """
    targets = {task: target for task, (target, _) in TASKS.items()} | DISTILLATION_TASKS
    return import_named(targets, name, "task of fine-tuning")  # type: ignore[no-any-return]
