"""A vector for each token of a text, as ColBERT compares them."""

from zoo.families.tasks import TaskSpec
from zoo.tasks.options import EVAL_NEGATIVES, LABELLED, NEGATIVES, PAIR, PAIR_COLUMNS

TASKS = (
    TaskSpec(
        "late-interaction",
        "Learn a vector for each token, which MaxSim compares.",
        synonyms=("colbert",),
        heads=("none",),
        train="zoo.tasks.late_interaction.train:LATE_INTERACTION",
        train_options=(NEGATIVES,),
        losses="zoo.finetuning.embeddings.losses:loss_types_of_any",
        columns=PAIR_COLUMNS,
        # The model decides how texts are compared.
        evaluate="zoo.tasks.sentence_embedding.evaluate:SentenceEmbeddingEvaluation",
        eval_options=(*LABELLED, PAIR, EVAL_NEGATIVES),
    ),
)
