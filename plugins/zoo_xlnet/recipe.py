"""Settings of XLNet (arXiv:1906.08237, appendix A.4, and the released code)."""

from zoo.families.distillation import pretraining_recipe
from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_recipe

OBJECTIVE = "permutation-lm"

# README (IMDB), tpu_squad_large.sh and tpu_race_large_bsz32.sh of the released code, and its
# defaults: no weight decay, and in run_squad.py a decay of 0.75 from layer to layer
PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "batch_size": 32,
        "max_steps": 4000,
        "optimizer": {"learning_rate": 2e-5},
        "lr_scheduler": {"name": "linear", "warmup_steps": 500},
        "tasks": {
            "question-answering": {
                "batch_size": 48,
                "max_steps": 8000,
                "optimizer": {"learning_rate": 3e-5, "eps": 1e-6, "layerwise_lr_decay": 0.75},
                "lr_scheduler": {"warmup_steps": 1000},
            },
            "multiple-choice": {
                "max_steps": 12000,
                "optimizer": {"learning_rate": 2e-5, "eps": 1e-6},
                "lr_scheduler": {"warmup_steps": 1000},
            },
        },
    }
}

# No paper distils XLNet into an XLNet: the recipe of other language models, with the teacher's
# predictions at the places that both predict. Predictions elsewhere would depend on these tokens.
DISTILLATION = (
    pretraining_recipe(
        "xlnet",
        "Sanh et al. 2019, arXiv:1910.01108, section 3, on predicted tokens only",
        terms={
            "kl": {"kind": "kl", "weight": 5.0, "temperature": 2.0},
            "cosine": {"kind": "hidden-cosine", "weight": 1.0, "layers": "last"},
        },
    ),
)


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores.

    Table 7 has the settings of ``large``; the paper has none for ``base``, which gets the same.
    Clipping, the last learning rate and Adam without bias correction follow train.py.
    """
    if size == "tiny":
        return tiny_recipe(
            OBJECTIVE,
            objective_args={"mem_len": 48},
            config={"dropout": 0.0, "initializer_range": 0.05},
            seq_len_warmup=None,  # rows go on in the next step
            global_batch_tokens=4096,
            max_steps=800,
        )
    return Recipe(
        objective=OBJECTIVE,
        seq_len=512,
        global_batch_tokens=8192 * 512,
        max_steps=500_000,
        optimizer=OptimizerConfig(
            learning_rate=4e-4,
            eps=1e-6,
            weight_decay=0.01,
            bias_correction=False,
            max_grad_norm=0.25,
        ),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=40_000, min_lr_ratio=0.004),
    )
