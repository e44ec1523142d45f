"""Settings of distillation into static embeddings."""

from zoo.families.distillation import DistillationRecipe, Extraction, Stage

DISTILLATION = (
    DistillationRecipe(
        name="static",
        # the vectors of tokens that model2vec distils without data, in the teacher's dimensions,
        # then learn the teacher's embeddings of texts, as students of sentence-transformers do
        source="Tulkens and van Dongen 2024, model2vec; Reimers and Gurevych, "
        "model_distillation.py of sentence-transformers",
        init_layers=None,
        data="sentences",
        extraction=Extraction(),
        settings={
            "num_train_epochs": 1.0,
            "batch_size": 64,
            "warmup_ratio": 0.1,
            # of a table of vectors, in which a step changes few rows
            "optimizer": {"name": "adamw", "learning_rate": 1e-2, "eps": 1e-6},
        },
        stages={
            "training": Stage(terms={"embeddings": {"kind": "embeddings", "reduction": "elements"}})
        },
    ),
)
