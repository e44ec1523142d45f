"""Settings for pretraining and fine-tuning M2M100 and NLLB."""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_seq2seq_recipe

# M2M100 is trained on translations only, which is `zoo finetune --task seq2seq`. NLLB also learns
# from texts of one language by mBART's objective (arXiv:2207.04672, section 6.4), with which a new
# model begins here.
OBJECTIVE = "text-infilling"
OPTIONS = {"noise_density": 0.35, "poisson_lambda": 3.5}  # arXiv:2001.08210, section 2.2
ADAM = {"betas": [0.9, 0.98], "eps": 1e-6}

PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "num_train_epochs": 5.0,
        "batch_size": 64,
        "warmup_ratio": 0.1,
        "optimizer": {"learning_rate": 5e-5, **ADAM},
        "tasks": {"seq2seq": {"task_args": {"label_smoothing_factor": 0.1}}},
    }
}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return tiny_seq2seq_recipe(OBJECTIVE, objective_args=OPTIONS, learning_rate=1e-3)
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=512,
        global_batch_tokens=2048 * 512,
        max_steps=300_000,
        optimizer=OptimizerConfig(learning_rate=2e-3, betas=(0.9, 0.98), eps=1e-6),
        lr_scheduler=LRSchedulerConfig(name="inverse-sqrt", warmup_steps=8_000),
    )
