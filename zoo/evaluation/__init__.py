"""Evaluation of models: from a checkpoint and files to numbers.

The module of an evaluation is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from zoo.io.named import import_named

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.evaluation.base import Evaluation
    from zoo.inference import Session

__all__ = ["EVALUATIONS", "evaluation_type", "make_evaluation"]

# name -> (class, one-line help)
EVALUATIONS = {
    "minimal-pairs": (
        "zoo.evaluation.minimal_pairs:MinimalPairs",
        "Prefer the acceptable of two sentences.",
    ),
    "perplexity": ("zoo.evaluation.perplexity:Perplexity", "Predict each token from those before."),
    "pseudo-perplexity": (
        "zoo.evaluation.perplexity:PseudoPerplexity",
        "Predict each token from all others.",
    ),
    "replaced-tokens": (
        "zoo.evaluation.replaced_tokens:ReplacedTokens",
        "Detect tokens that were replaced.",
    ),
    "text-classification": (
        "zoo.evaluation.labelled.texts:TextClassification",
        "Predict the label of texts or pairs.",
    ),
    "regression": (
        "zoo.evaluation.labelled.texts:Regression",
        "Predict a number for texts or pairs.",
    ),
    "token-classification": (
        "zoo.evaluation.labelled.words:TokenClassification",
        "Predict the label of each word.",
    ),
    "multi-label": (
        "zoo.evaluation.labelled.texts:MultiLabel",
        "Predict all labels of texts or pairs.",
    ),
    "sentence-embedding": (
        "zoo.evaluation.labelled.similarity:SentenceEmbedding",
        "Correlate similarities of texts with scores, or retrieve texts.",
    ),
    "causal-lm": (
        "zoo.evaluation.labelled.completions:Completions",
        "Predict the tokens of completions of prompts.",
    ),
    "seq2seq": ("zoo.evaluation.labelled.generated:Seq2Seq", "Generate the targets of sources."),
    "question-answering": (
        "zoo.evaluation.labelled.answers:QuestionAnswering",
        "Answer questions by spans of their contexts.",
    ),
    "multiple-choice": (
        "zoo.evaluation.labelled.choices:MultipleChoice",
        "Choose one of several texts for a context.",
    ),
}


def evaluation_type(name: str) -> "type[Evaluation]":
    """Return the class of an evaluation.

    Raises:
        UsageError: no evaluation has that name; the nearest is named.
    """
    targets = {evaluation: target for evaluation, (target, _) in EVALUATIONS.items()}
    return import_named(targets, name, "evaluation")  # type: ignore[no-any-return]


def make_evaluation(
    name: str, checkpoint: "Checkpoint", session: "Session", **options: Any
) -> "Evaluation":
    """Return an evaluation.

    Args:
        name: one of ``EVALUATIONS``.
        checkpoint: the checkpoint.
        session: the model.
        **options: ``limit``, and those of the evaluation's class.

    Raises:
        UsageError: no evaluation has that name, or the model does not support it.
    """
    return evaluation_type(name)(checkpoint, session, **options)
