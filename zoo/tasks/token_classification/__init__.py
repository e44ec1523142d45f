"""A label for each word: entities, parts of speech."""

from zoo.families.tasks import ModelField, TaskColumn, TaskOption, TaskSpec
from zoo.tasks.options import DOC_STRIDE, LABELLED, MAX_SEQ_LEN, WINDOWS

TASKS = (
    TaskSpec(
        "token-classification",
        "Predict the label of each word: entities, parts of speech.",
        verb="classify",
        synonyms=("ner",),
        heads=("token-classification",),
        output="batch tokens labels",
        predict="zoo.tasks.token_classification.predict:ClassifyTokens",
        train="zoo.tasks.token_classification.train:TOKEN_CLASSIFICATION",
        evaluate="zoo.tasks.token_classification.evaluate:TokenClassificationEvaluation",
        run_options=(
            TaskOption(
                "aggregate",
                "Join tokens to labelled spans; all but simple by words.",
                choices=("none", "simple", "first", "average", "max"),
                default="none",
            ),
            WINDOWS,
        ),
        train_options=(DOC_STRIDE,),
        settings=("data.labels", "class_weights"),
        columns={"text": TaskColumn("text", "texts"), "label": TaskColumn("label", "texts")},
        file_patterns=("*.conllu", "*.conll"),
        eval_options=(*LABELLED, MAX_SEQ_LEN, DOC_STRIDE),
        metrics=("f1", "accuracy"),  # of entities, else of words
        model_fields=(
            ModelField(
                "transitions",
                "labels words by a CRF, which no class of the Hub has",
                "task_args.crf",
            ),
        ),
        pipeline_tag="token-classification",
    ),
)
