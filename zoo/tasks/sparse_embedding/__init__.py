"""Weights of the vocabulary's words for texts, most of them zero, as SPLADE learns them."""

from zoo.families.tasks import TaskSpec
from zoo.tasks.options import EVAL_NEGATIVES, LABELLED, NEGATIVES, PAIR, PAIR_COLUMNS

TASKS = (
    TaskSpec(
        "sparse-embedding",
        "Learn a weight of each word of the vocabulary for texts.",
        synonyms=("splade",),
        heads=("masked-lm",),
        train="zoo.tasks.sparse_embedding.train:SPARSE_EMBEDDING",
        train_options=(NEGATIVES,),
        losses="zoo.finetuning.embeddings.losses:loss_types_of_any",
        columns=PAIR_COLUMNS,
        # the model decides how texts are compared
        evaluate="zoo.tasks.sentence_embedding.evaluate:SentenceEmbeddingEvaluation",
        eval_options=(*LABELLED, PAIR, EVAL_NEGATIVES),
        settings=("data.eval_score",),
    ),
)
